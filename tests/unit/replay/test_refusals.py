"""What cannot be replayed is refused, with what can be done instead."""

from pathlib import Path

import pytest

from builders.jobs import BATCH, SMALL
from disttrain.launch.run_folder import RunFolder
from disttrain.replay import recording
from disttrain.replay.errors import NotReplayable


@pytest.mark.parametrize(
    ("manifest", "remedy"),
    [(SMALL, "--set spec.record=true"), (BATCH, "run its manifest again, it gives the same bits")],
)
def test_a_run_without_a_record_is_refused(tmp_path: Path, manifest: str, remedy: str) -> None:
    run = RunFolder(tmp_path)
    run.ledger.mkdir()
    run.job.write_text(manifest)
    with pytest.raises(NotReplayable, match=remedy):
        recording.read(tmp_path)
