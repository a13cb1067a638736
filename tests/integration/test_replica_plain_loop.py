"""A plain PyTorch loop joins a running job with real processes."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import disttrain
from builders.commands import disttrain as disttrain_command
from disttrain.coordinator.errors import NotJoined
from disttrain.parameter_server import ledger
from tasks.proving import Everything

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DIGITS = EXAMPLES / "digits"
EXAMPLE = EXAMPLES / "plain_loop" / "plain_loop.py"
TASKS = EXAMPLES.parent / "tests" / "tasks"
OWN_FROZEN = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: proving}
spec:
  task: {entrypoint: proving:Proving, arguments: {model: everything}, frozen: own}
  strategy: {downpour: {optimizer: {sgd: {learningRate: 0.01}}}}
  seed: 3
  batchSize: 8
  stop: {epochs: 1}
  replicas: {device: cpu}
"""


class Run:
    """A running job and its status file."""

    def __init__(self, folder: Path, manifest: Path = DIGITS / "job-small.yaml") -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "disttrain", "run", str(manifest)),
                *("--output", str(folder), "--set", "spec.stop.epochs=100000"),
                *("--set", "spec.replicas.count=1", "--set", "spec.replicas.threads=1"),
                *("--set", "spec.evaluation.everyEpochs=1000", "--set", "spec.audit=full"),
                *("--set", "spec.coordinator.heartbeatSeconds=0.5"),
                *("--set", "spec.coordinator.leaseSeconds=2"),
                *("--set", "spec.coordinator.memberTimeoutSeconds=5"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def status(self) -> dict[str, Any]:
        try:
            status: dict[str, Any] = json.loads((self.folder / "status.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return status

    def wait_until(self, holds: Callable[[dict[str, Any]], bool]) -> None:
        end = time.monotonic() + 90
        while not holds(self.status()):
            assert time.monotonic() < end, self.status()
            assert self.process.poll() is None, "the job ended"
            time.sleep(0.05)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with running(Run(tmp_path / "run")) as run:
        yield run


@contextmanager
def running(run: Run) -> Iterator[Run]:
    """Once it trains, and until it has ended; then the audit holds."""
    try:
        run.wait_until(lambda status: status.get("samples", 0) > 0)
        yield run
    finally:
        run.process.send_signal(signal.SIGINT)
        try:
            run.process.wait(60)
        except subprocess.TimeoutExpired:
            run.process.kill()
            raise
    answer = disttrain_command("audit", run.folder)
    assert answer.code == 0, answer.out


def a_model() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 10)),
    )


def test_a_loop_brings_frozen_parameters_of_its_own_and_the_same_as_the_job(
    tmp_path: Path,
) -> None:
    shutil.copy(TASKS / "proving.py", tmp_path)
    manifest = tmp_path / "job.yaml"
    manifest.write_text(OWN_FROZEN)
    torch.manual_seed(3)
    model = Everything()
    with running(Run(tmp_path / "run", manifest)) as run:
        with disttrain.DownpourOptimizer(model, run.folder) as optimizer:
            functional.cross_entropy(model(torch.rand(8, 12)), torch.arange(8) % 5).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            model.frozen.weight[0, 0] += 1
        with pytest.raises(NotJoined, match="frozen parameters have other values"):
            disttrain.DownpourOptimizer(model, run.folder)


def pushes_of(folder: Path, replica: int) -> int:
    records = ledger.read(next((folder / "ledger").glob("shard-0.i*.bin")))
    return len({r["sequence"] for r in records if r["sender"] == replica and r["samples"]})


def test_a_plain_loop_joins_trains_and_leaves(run: Run) -> None:
    torch.manual_seed(0)
    images, labels = torch.rand(32, 1, 8, 8), torch.randint(0, 10, (32,))
    model = a_model()
    losses = []

    with disttrain.DownpourOptimizer(model, run.folder) as optimizer:
        run.wait_until(lambda status: status["liveReplicas"] == 2)
        for _ in range(60):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item())
        index = optimizer.replica_index

    assert sum(losses[-5:]) < sum(losses[:5])
    run.wait_until(lambda status: status["liveReplicas"] == 1)
    assert pushes_of(run.folder, index) == 60
    assert run.process.poll() is None, "the job goes on without the loop"


@pytest.mark.nightly
def test_the_example_joins_and_prints_its_loss(run: Run) -> None:
    options = ("--epochs", "2", "--width", "8", "--hidden", "32")
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(run.folder), *options],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    name, loss = done.stdout.split()
    assert name == "loss"
    assert float(loss) < 2.3, "worse than a model that guesses"


def test_a_killed_loop_is_missed_and_what_it_did_is_in_the_account(run: Run) -> None:
    """The account is what the audit at the end of every run looks at."""
    options = ("--epochs", "10000", "--width", "8", "--hidden", "32")
    loop = subprocess.Popen([sys.executable, str(EXAMPLE), str(run.folder), *options])
    try:
        run.wait_until(lambda status: status["liveReplicas"] == 2)
        names = {each["name"] for each in run.status()["members"]}
        (index,) = {int(name.partition("-")[2]) for name in names if "replica" in name} - {0}
        run.wait_until(lambda _: pushes_of(run.folder, index) > 20)
    finally:
        loop.kill()
        loop.wait()
    run.wait_until(lambda status: status["liveReplicas"] == 1)


def test_another_model_is_refused_by_name(run: Run) -> None:
    with pytest.raises(NotJoined, match="weight"):
        disttrain.DownpourOptimizer(nn.Linear(3, 3), run.folder)
    samples = run.status()["samples"]
    run.wait_until(lambda status: status["samples"] > samples)
