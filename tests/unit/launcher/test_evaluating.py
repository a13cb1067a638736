"""Who is named when one of the processes that evaluate a divided model has ended."""

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from disttrain.job import parsing
from disttrain.job.names import Role
from disttrain.launch import linux, outcome
from disttrain.launch.config import Evaluation, LaunchConfig
from disttrain.launch.errors import EvaluationLost
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.run_folder import RunFolder
from disttrain.launcher import evaluating
from disttrain.launcher.fork_messages import Ended, Event, Started
from disttrain.task.errors import ModelError
from disttrain.transport.config import TransportKind

MANIFEST = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: divided}
spec:
  task: {entrypoint: "images:Images"}
  strategy: {downpour: {optimizer: {sgd: {learningRate: 0.1}}}}
  batchSize: 8
  stop: {epochs: 1}
  replicas: {partitions: 3}
"""
STALL_SECONDS = 0.01
RESTART, KILLED = ExitCode.RESTART, -signal.SIGKILL


class Host:
    """Whose processes end with these codes, one at each look; then no more ends."""

    def __init__(self, *ends: tuple[int, int]) -> None:
        self.ends = [*ends]
        self.started: list[str] = []
        self.is_closed = False
        self.pid = 1
        self._never, self._write = os.pipe()
        self._always = os.open(os.devnull, os.O_RDONLY)

    def start(self, name: str, config: Path, log: Path) -> None:
        assert config.exists()
        log.write_text("Traceback: no room\n")
        self.started.append(name)

    def descriptors(self) -> list[int]:
        return [self._always if self.ends else self._never]

    def events(self) -> Iterator[Event]:
        partition, code = self.ends.pop(0)
        yield Ended(name=f"replica-0-{partition}", pid=1, code=code)

    def patience_seconds(self) -> None:
        """It owes nothing."""

    def close(self) -> None:
        for each in (self._never, self._write, self._always):
            os.close(each)
        self.is_closed = True


def told(folder: Path) -> LaunchConfig:
    return LaunchConfig(
        job=parsing.parse_job(MANIFEST, source="job.yaml"),
        job_uid="",
        role=Role.REPLICA,
        index=0,
        run_folder=folder,
        task_folder=folder,
        coordinator_address="",
        transport=TransportKind.SHARED_MEMORY,
        threads=1,
        evaluation=Evaluation(
            model_file=folder / "model",
            sample=(2, 10, 9),
            batch_size=4,
            result=folder / "sums",
            meeting=folder / "meeting",
        ),
    )


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, host: Any) -> None:
    monkeypatch.setattr(evaluating, "ForkHost", lambda _: host)
    monkeypatch.setattr(evaluating, "_OTHERS_SECONDS", 0.1)
    try:
        evaluating.run(told(folder), STALL_SECONDS)
    finally:
        assert host.is_closed
        assert host.started == ["replica-0-0", "replica-0-1", "replica-0-2"]


def test_all_have_ended_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host((1, 0), (0, 0), (2, 0))
    run(tmp_path, monkeypatch, host)
    assert not host.ends


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (((2, KILLED),), "partition 2 has ended: killed by SIGKILL"),
        (((1, 0), (0, 70)), "partition 0 has ended: exit code 70"),
        # Who has lost its group may be seen first.
        (((0, RESTART), (1, RESTART), (2, KILLED)), "partition 2 has ended: killed by SIGKILL"),
        (((0, RESTART), (1, RESTART)), "partition 0 has ended: exit code 75"),
    ],
)
@pytest.mark.timeout(30)
def test_the_one_that_failed_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ends: tuple[tuple[int, int], ...],
    said: str,
) -> None:
    with pytest.raises(EvaluationLost, match=said) as raised:
        run(tmp_path, monkeypatch, Host(*ends))
    assert "Traceback: no room" in str(raised.value)


def test_an_error_of_the_task_is_shown_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path)
    folder.prepare()
    outcome.write_failure(folder.failure("replica-0-1"), ModelError("a bad model"))
    with pytest.raises(EvaluationLost, match=r"\Aa bad model\Z"):
        run(tmp_path, monkeypatch, Host((1, ExitCode.FINAL_ERROR)))


class Hanging(Host):
    """Whose processes begin, and do nothing then."""

    def descriptors(self) -> list[int]:
        return [self._never if self.has_told else self._always]

    has_told = False

    def events(self) -> Iterator[Event]:
        self.has_told = True
        for number, name in enumerate(self.started):
            yield Started(name=name, pid=100 + number)


@pytest.mark.timeout(30)
def test_one_that_uses_no_processor_time_ends_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluating, "_LOOK_SECONDS", 0.0)
    # Those that wait for it look again and again.
    looks = itertools.count()
    monkeypatch.setattr(linux, "used_ticks", lambda pid: 7 if pid == 101 else next(looks))
    with pytest.raises(EvaluationLost) as raised:
        run(tmp_path, monkeypatch, Hanging())
    said = str(raised.value)
    assert "partition 1 hangs: it has not ended, and did nothing for" in said
    assert "--stall-timeout" in said
    assert "Traceback: no room" in said


@pytest.mark.timeout(30)
def test_a_fork_server_that_answers_nothing_ends_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluating, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(linux, "used_ticks", lambda _: 7)
    monkeypatch.setattr(Host, "patience_seconds", lambda _: 20.0)
    with pytest.raises(EvaluationLost, match="the fork server hangs: it owes an answer"):
        run(tmp_path, monkeypatch, Host())
