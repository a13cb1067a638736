"""What the optimizer of a joined loop leaves behind when it cannot begin."""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from torch import nn

from disttrain.coordinator.errors import JobOver
from disttrain.job import defaults
from disttrain.launch import config as launch_config
from disttrain.launch.run_folder import RunFolder
from disttrain.replica import accrual, optimizer
from disttrain.replica.errors import JobEnded
from disttrain.replica.optimizer import DownpourOptimizer


@pytest.fixture
def membership(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """What every optimizer of the test joins with."""
    membership, config = MagicMock(), MagicMock()
    config.job.spec.replicas.count = 1
    monkeypatch.setattr(optimizer, "Membership", lambda _: membership)
    monkeypatch.setattr(launch_config, "read", lambda _: config)
    return membership


@pytest.fixture
def held(tmp_path: Path) -> Iterator[RunFolder]:
    """A folder whose launcher lives."""
    folder = RunFolder(tmp_path)
    descriptor = folder.lock()
    yield folder
    os.close(descriptor)


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        (
            '{"phase": "Complete", "reason": "TargetMetric"}',
            r"has ended: Complete \(TargetMetric\)",
        ),
        ('{"phase": "Stopped", "reason": null}', "has ended: Stopped; join one that runs"),
        (None, "nobody runs the job .* disttrain resume"),
    ],
)
def test_a_run_that_nobody_runs_is_not_waited_for(
    membership: MagicMock, tmp_path: Path, summary: str | None, said: str
) -> None:
    if summary is not None:
        (tmp_path / "summary.json").write_text(summary)

    with pytest.raises(JobEnded, match=said):
        DownpourOptimizer(nn.Linear(2, 1), tmp_path)

    assert not membership.mock_calls


def test_who_waits_says_so_and_looks_whether_the_run_has_ended_meanwhile(
    membership: MagicMock, held: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    def join(_join: object, _report: object, meanwhile: Callable[[], None]) -> None:
        meanwhile()
        assert [each.levelno for each in caplog.records] == [logging.WARNING]
        held.summary.write_text('{"phase": "Failed", "reason": "TaskError"}')
        meanwhile()

    membership.join = join
    with pytest.raises(JobEnded, match="TaskError"):
        DownpourOptimizer(nn.Linear(2, 1), held.path)


def test_a_job_that_takes_nobody_any_more_has_ended(membership: MagicMock, held: RunFolder) -> None:
    membership.join.side_effect = JobOver("the job is Draining")
    with pytest.raises(JobEnded, match="Draining"):
        DownpourOptimizer(nn.Linear(2, 1), held.path)


@pytest.mark.parametrize("batch_size", [0, 33])
def test_a_batch_that_the_job_does_not_have_is_refused(
    membership: MagicMock,
    held: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    batch_size: int,
) -> None:
    """Shards would refuse its pushes."""
    monkeypatch.setattr(defaults, "samples_per_step", lambda _: 32)
    with pytest.raises(ValueError, match=f"must be 1 to 32, .* got {batch_size}; set"):
        DownpourOptimizer(nn.Linear(2, 1), held.path, batch_size=batch_size)
    assert not membership.mock_calls


def test_a_connection_that_cannot_begin_is_closed(
    monkeypatch: pytest.MonkeyPatch, membership: MagicMock, held: RunFolder
) -> None:
    model = nn.Linear(2, 1)
    connection = membership.connect.return_value
    connection.model.trainable = list(model.parameters())
    connection.first_fetch.side_effect = TimeoutError
    monkeypatch.setattr(optimizer, "Downpour", MagicMock())
    monkeypatch.setattr(accrual, "gradient_buffers", MagicMock())
    monkeypatch.setattr(defaults, "extent", MagicMock())

    with pytest.raises(TimeoutError):
        DownpourOptimizer(model, held.path)

    assert membership.join.call_args.args[0].index is None
    membership.close.assert_called_once_with()
