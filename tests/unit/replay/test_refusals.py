"""What cannot be replayed is refused, with what can be done instead."""

from pathlib import Path

import pytest

from builders.jobs import BATCH, SMALL
from disttrain.launch.run_folder import RunFolder
from disttrain.replay import recording
from disttrain.replay.recording import NotReplayable


@pytest.mark.parametrize(
    ("manifest", "remedy"),
    [
        (SMALL, "run the job with --set spec.record=true$"),
        (BATCH, "run its manifest again, it gives the same bits"),
    ],
)
def test_a_run_without_a_record_is_refused(tmp_path: Path, manifest: str, remedy: str) -> None:
    run = RunFolder(tmp_path)
    run.ledger.mkdir()
    run.job.write_text(manifest)
    with pytest.raises(NotReplayable, match=remedy):
        recording.read(tmp_path)


@pytest.mark.parametrize("audit", ["summary", "'off'"])
def test_a_run_that_kept_too_little_is_refused_by_its_level(tmp_path: Path, audit: str) -> None:
    run = RunFolder(tmp_path)
    run.ledger.mkdir()
    run.job.write_text(f"{SMALL}  audit: {audit}\n")
    level = audit.strip("'")
    with pytest.raises(NotReplayable, match=f"audit: {level} .* --set spec.audit=full"):
        recording.read(tmp_path)
