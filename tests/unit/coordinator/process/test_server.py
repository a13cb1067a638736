"""The beginning of the coordinator's process."""

from unittest.mock import Mock

import pytest

from disttrain.checkpoint.errors import StoreDenied
from disttrain.coordinator.process import server
from disttrain.coordinator.process.start import Origin

BEGUN = (Mock(), Origin.NEW)


def test_credentials_may_come_a_moment_after_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Mock(side_effect=[StoreDenied("s3://b"), StoreDenied("s3://b"), BEGUN])
    monkeypatch.setattr(server, "_parts", parts)
    monkeypatch.setattr(server, "_ASK_AGAIN_SECONDS", 0.0)
    assert server._begun(Mock()) == BEGUN


def test_who_is_not_let_in_in_the_end_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_parts", Mock(side_effect=StoreDenied("s3://b")))
    monkeypatch.setattr(server, "_LET_IN_SECONDS", 0.0)
    with pytest.raises(StoreDenied):
        server._begun(Mock())
