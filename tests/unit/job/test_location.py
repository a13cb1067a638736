from pathlib import Path

import pytest

from builders.jobs import a_job
from disttrain.job import location
from disttrain.job.errors import InvalidManifest
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
