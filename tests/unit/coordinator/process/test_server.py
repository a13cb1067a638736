"""The beginning of the coordinator's process."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from disttrain.checkpoint.errors import StoreAway, StoreDenied
from disttrain.coordinator.process import server
from disttrain.coordinator.process.reporting import RunFiles
from disttrain.coordinator.process.server import Origin

BEGUN = (Mock(), Origin.NEW)


def test_credentials_may_come_a_moment_after_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Mock(side_effect=[StoreDenied("s3://b"), StoreDenied("s3://b"), BEGUN])
    monkeypatch.setattr(server, "_parts", parts)
    monkeypatch.setattr(server, "_ASK_AGAIN_SECONDS", 0.0)
    assert server._begun(Mock()) == BEGUN


@pytest.mark.parametrize(
    ("served", "resume_from", "expected"),
    [
        (False, None, StoreDenied),
        (True, Path("checkpoints/00000001"), StoreDenied),
        (True, None, StoreAway),
    ],
)
def test_who_is_not_let_in_gives_up_unless_the_job_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    served: bool,
    resume_from: Path | None,
    expected: type[Exception],
) -> None:
    monkeypatch.setattr(server, "_parts", Mock(side_effect=StoreDenied("s3://b: Expired")))
    monkeypatch.setattr(server, "_LET_IN_SECONDS", 0.0)
    if served:
        RunFiles(tmp_path).write_status({})
    with pytest.raises(expected, match="s3://b: Expired"):
        server._begun(Mock(run_folder=tmp_path, resume_from=resume_from))
