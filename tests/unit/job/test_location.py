from pathlib import Path

import pytest

from builders.jobs import a_job
from disttrain.job import location
from disttrain.job.finding import InvalidManifest
from disttrain.job.location import Location

RUN = Path("/runs/one")


def where(uri: str) -> Location:
    return location.of(a_job(f"spec.checkpoint.uri='{uri}'"), "u1", RUN, "shard-0")


@pytest.mark.parametrize(
    ("uri", "folder"),
    [
        ("checkpoints/", "/runs/one/checkpoints"),
        ("/disk/c", "/disk/c"),
        ("file:///disk/my%20c", "/disk/my c"),
    ],
)
def test_a_path_is_the_folder(uri: str, folder: str) -> None:
    assert where(uri) == Location(Path(folder))


@pytest.mark.parametrize("uri", ["s3://bucket/jobs", "s3://bucket/jobs/"])
def test_in_an_object_store_a_job_has_its_own_place_and_a_process_its_own_copies(uri: str) -> None:
    name = a_job().metadata.name
    assert where(uri) == Location(RUN / "copies/shard-0", f"s3://bucket/jobs/{name}-u1")


@pytest.mark.parametrize(
    "uri",
    ["memory://all", "dir://a", "zip://a", "s3://b/*", "s3://", "S3://b", "simple::s3://b"],
)
def test_what_is_no_place_for_all_processes_is_refused(uri: str) -> None:
    with pytest.raises(InvalidManifest, match=r"spec\.checkpoint\.uri: must be a p"):
        where(uri)


@pytest.mark.parametrize("uri", ["a\\0b", "file:///a%00b", "s3://b/\\0"])
def test_a_place_holds_no_nul(uri: str) -> None:
    with pytest.raises(InvalidManifest, match=r"spec\.checkpoint\.uri: must be a path, "):
        a_job(f'spec.checkpoint.uri="{uri}"')


@pytest.mark.parametrize("uri", ["x" * 300, f"a/{'x' * 300}/b", "%C3%BC" * 150, "ü" * 150])
def test_a_folder_that_no_disk_takes_is_refused_with_both_lengths(uri: str) -> None:
    given = f"file:///{uri}" if "%" in uri else uri
    with pytest.raises(InvalidManifest, match="names of at most 255 bytes, got one of 300"):
        where(given)


def test_a_folder_may_have_the_longest_name_there_is() -> None:
    assert where("x" * 255).folder.name == "x" * 255
