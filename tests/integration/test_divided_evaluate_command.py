"""`disttrain evaluate` with several partitions: what it prints, and how it ends.

The processes that are killed evaluate and train nothing: there is nothing for `disttrain audit`.
"""

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from builders.at_night import others_at_night
from builders.runs import TIMEOUT_SECONDS, RunningJob, set_field
from builders.warm_processes import WarmCommand
from disttrain.launch import linux

MANIFEST = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: divided}
spec:
  task: {entrypoint: "divided_images:Measured", arguments: {dropout: 0.3}}
  strategy: {downpour: {optimizer: {sgd: {learningRate: 0.05}}}}
  batchSize: 8
  portionSize: 24
  stop: {epochs: 1}
  evaluation: {everyEpochs: null, batchSize: 36}
  parameterServer: {shards: 1}
  replicas: {count: 1, device: cpu, threads: 1}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a run with a checkpoint of a model with running statistics."""
    with RunningJob(tmp_path_factory.mktemp("run"), (), MANIFEST) as job:
        assert job.wait() == 0, job.printed()
        return job.output


@contextmanager
def evaluating(run: Path, printed: Path, *options: str) -> Iterator[WarmCommand]:
    command = WarmCommand(["evaluate", str(run), *options], printed)
    try:
        yield command
    finally:
        command.kill()


def figures(text: str) -> dict[str, float]:
    lines = re.findall(r"^(\w+) ([-+.\de]+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in lines}


def measured(run: Path, folder: Path, *options: str) -> dict[str, float]:
    printed = folder / "-".join(["printed", *options])
    with evaluating(run, printed, *options) as command:
        assert command.wait(TIMEOUT_SECONDS) == 0, printed.read_text()
    return figures(printed.read_text())


DIVISIONS = ((), ("--partitions", "2"), ("--grid", "2x2"))


def test_partitions_measure_what_one_process_does(run: Path, tmp_path: Path) -> None:
    wanted, *found = (measured(run, tmp_path, *options) for options in DIVISIONS)
    assert wanted.keys() == {"samples", "loss", "accuracy", "mirrored"}
    for each in found:
        assert each == pytest.approx(wanted, rel=1e-5)


def test_what_partitions_have_trained_any_number_of_them_measures(tmp_path: Path) -> None:
    divided = ("spec.replicas.partitions=2", "spec.parameterServer.shards=2")
    with RunningJob(tmp_path, divided, MANIFEST) as job:
        assert job.wait() == 0, job.printed()
        summary = job.summary()
        for options in DIVISIONS:
            found = measured(job.output, tmp_path, *options)
            assert found["loss"] == pytest.approx(summary["finalLoss"], rel=1e-4)
            for name, wanted in summary["finalMeasures"].items():
                assert found[name] == pytest.approx(wanted, rel=1e-4), (options, name)


def test_a_model_that_cannot_be_divided_names_the_layer(run: Path, tmp_path: Path) -> None:
    with evaluating(run, tmp_path / "printed", "--partitions", "9") as command:
        assert command.wait(TIMEOUT_SECONDS) == 1
    said = (tmp_path / "printed").read_text()
    assert "--partitions 9: layer head: 6 outputs cannot be divided over 9 partitions" in said


def descendants(pid: int) -> dict[int, str]:
    """Process ids and names."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found[int(child)] = Path(f"/proc/{child}/comm").read_text().strip()
            found |= descendants(int(child))
    return found


@contextmanager
def held(run: Path, folder: Path, *options: str) -> Iterator[tuple[WarmCommand, dict[str, int]]]:
    """The command in the middle of what it measures, and its processes by their names."""
    for file in run.parent.glob("*.py"):
        shutil.copy(file, folder)
    output = folder / "output"
    shutil.copytree(run, output)
    (folder / "held").mkdir()
    set_field(output, "task.arguments", {"folder": str(folder / "held")})
    with evaluating(output, folder / "printed", "--partitions", "2", *options) as command:
        end = time.monotonic() + TIMEOUT_SECONDS
        while not (folder / "held" / "measuring").exists():
            assert command.poll() is None, (folder / "printed").read_text()
            assert time.monotonic() < end
            time.sleep(0.01)
        yield command, {name: pid for pid, name in descendants(command.pid).items()}


def assert_gone(processes: dict[str, int]) -> None:
    end = time.monotonic() + 60.0
    while not all(map(linux.has_ended, processes.values())):
        assert time.monotonic() < end, processes
        time.sleep(0.01)


@pytest.mark.parametrize("partition", [0, 1])
def test_a_partition_that_is_killed_ends_the_command(
    run: Path, tmp_path: Path, partition: int
) -> None:
    with held(run, tmp_path) as (command, processes):
        os.kill(processes[f"dt:replica-0-{partition}"], signal.SIGKILL)
        assert command.wait(TIMEOUT_SECONDS) == 1
        assert_gone(processes)
    said = (tmp_path / "printed").read_text()
    assert f"error: the process of partition {partition} has ended: killed by SIGKILL" in said


@pytest.mark.parametrize("partition", others_at_night(0, 1))
def test_a_partition_that_is_stopped_ends_the_command(
    run: Path, tmp_path: Path, partition: int
) -> None:
    with held(run, tmp_path, "--stall-timeout", "15") as (command, processes):
        os.kill(processes[f"dt:replica-0-{partition}"], signal.SIGSTOP)
        assert command.wait(TIMEOUT_SECONDS) == 1
        assert_gone(processes)
    said = " ".join((tmp_path / "printed").read_text().split())
    assert f"error: the process of partition {partition} hangs: it has not ended" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_of_a_command_that_is_ended_goes_on(
    run: Path, tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    with held(run, tmp_path) as (command, processes):
        assert {"dt:replica-0-0", "dt:replica-0-1"} <= processes.keys()
        assert list((tmp_path / "temporary").glob("disttrain-*"))
        command.send_signal(number)
        code = command.wait(TIMEOUT_SECONDS)
        assert code == (-number if number == signal.SIGKILL else 130)
        assert_gone(processes)
    if number != signal.SIGKILL:
        assert not list((tmp_path / "temporary").glob("disttrain-*"))
