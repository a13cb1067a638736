"""Files that cannot be read are bad manifests with a reason."""

from pathlib import Path

import pytest

from builders.jobs import SMALL, a_job
from disttrain.job.document import MAX_BYTES
from disttrain.job.finding import InvalidManifest
from disttrain.job.manifest_file import load_accepted, load_job


def test_a_job_is_loaded_with_assignments(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(SMALL)
    assert load_accepted(file, ["spec.seed=3"]).job == a_job("spec.seed=3")


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + SMALL.encode())
    assert load_job(file) == a_job()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"a: \xff", "must be UTF-8 text, got other bytes at position 3"),
        (b"x" * (MAX_BYTES + 10), f"must be at most {MAX_BYTES} bytes"),
        (b"", "the file is empty; a job was expected"),
    ],
)
def test_a_file_that_holds_no_manifest_is_named(
    tmp_path: Path, content: bytes | None, expected: str
) -> None:
    file = tmp_path / "job.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidManifest) as caught:
        load_job(file)
    assert str(caught.value).startswith(f"{file}: {expected}")


def test_a_folder_is_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(InvalidManifest, match="cannot be read: Is a directory"):
        load_job(tmp_path)
