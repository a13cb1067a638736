"""A strategy that is in no file of the product, and without a shard: replicas that keep their own.

It lies in `own_parameters`. What the product's three packages of strategies find there is all that
programs are told of it. The promises of `disttrain audit` are of shards, so that it refuses these
runs.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from safetensors.torch import load_file

from builders.launches import wait_until
from builders.runs import TIMEOUT_SECONDS, RunningJob
from disttrain.checkpoint import names
from disttrain.launch.exit_code import ExitCode

ROOT = Path(__file__).parents[2]
STRATEGY = Path(__file__).with_name("own_parameters")
HOOK = ROOT / "tests/builders/more_strategies"
SAMPLES, EPOCHS, BATCH = 1024, 2, 8
MANIFEST = f"""\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {{name: counting}}
spec:
  task: {{entrypoint: counting:Counting, arguments: {{step_seconds: 0.01}}}}
  strategy: {{ownParameters: {{learningRate: 1.0}}}}
  batchSize: {BATCH}
  stop: {{epochs: {EPOCHS}}}
  checkpoint: {{everySeconds: 0.5}}
  coordinator: {{heartbeatSeconds: 0.2, leaseSeconds: 3, memberTimeoutSeconds: 20}}
  replicas: {{count: 3, device: cpu}}
  failurePolicy: {{restartBackoff: {{initialSeconds: 0.1, maxSeconds: 1}}}}
"""
REPLICAS = ("replica-0", "replica-1", "replica-2")


def environment() -> dict[str, str]:
    """In which every program looks for strategies in that folder, too."""
    path = os.pathsep.join([str(HOOK), *sys.path])
    return os.environ | {"PYTHONPATH": path, "MORE_STRATEGIES": str(STRATEGY)}


class Job(RunningJob):
    """Commands are programs of their own: those that are forked know the product's strategies."""

    def __init__(self, folder: Path, *assignments: str) -> None:
        super().__init__(folder, assignments, MANIFEST)

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "disttrain", *words],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )

    def updates(self) -> int:
        """Steps in the model that the newest checkpoint holds."""
        folder = self.output / "checkpoints" / names.folder(self.status()["checkpoint"])
        (holder,) = json.loads((folder / names.MANIFEST).read_text())["holders"]
        return int(holder["version"])

    def has_saved_some(self) -> bool:
        return bool(self.status().get("checkpoint")) and self.updates() > 0

    def assert_complete(self) -> None:
        """All data was processed, and the model has exactly the steps that its checkpoint says."""
        summary = self.summary()
        assert (summary["phase"], summary["epochs"]) == ("Complete", EPOCHS)
        assert summary["samples"] == EPOCHS * SAMPLES
        model = load_file(self.output / "model.safetensors")
        assert model["first_updates"].eq(self.updates()).all()
        assert int(model["counts"].sum()) == BATCH * self.updates()

    def _start(self, command: Sequence[str]) -> None:
        self._printed = self.output.parent / "printed"
        with self._printed.open("ab") as printed:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "disttrain", *command],
                env=environment(),
                stdout=printed,
                stderr=subprocess.STDOUT,
            )


def test_it_is_at_most_five_files_and_no_other_names_it() -> None:
    files = {path for path in STRATEGY.rglob("*") if path.suffix == ".py"}
    assert len(files) <= 5
    folders = ("runtime", "operator", "development", "tests/builders", "docs", "charts")
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.*")):
        if path.suffix in {".py", ".md", ".yaml", ".json"}:
            text = path.read_text().lower().replace("_", "")
            assert "ownparameters" not in text, path


def test_replicas_learn_by_themselves_and_the_first_one_is_the_result(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        assert job.wait() == ExitCode.COMPLETE

        job.assert_complete()
        assert set(json.loads((job.output / "run.json").read_text())["processes"]) == {
            "coordinator",
            *REPLICAS,
        }
        members = {one["name"]: one for one in job.status()["members"]}
        assert members["replica-0"]["steps"] == job.updates()
        assert sum(members[name]["samples"] for name in REPLICAS) == EPOCHS * SAMPLES
        assert "shard" not in job.printed()


@pytest.mark.nightly
def test_a_checkpoint_of_a_replica_is_shown_and_exported_as_any(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        assert job.wait() == ExitCode.COMPLETE
        latest = names.folder(job.status()["checkpoint"])
        checkpoint = job.output / "checkpoints" / latest

        shown = job.command("inspect", str(checkpoint))
        exported = job.command("export", str(checkpoint), str(tmp_path / "again.safetensors"))
        audited = job.command("audit", str(job.output))
        status = job.command("status", str(job.output))

        assert "own_parameters" in shown.stdout
        assert "shard" not in shown.stdout + status.stdout
        assert exported.returncode == 0, exported.stderr
        again, model = (tmp_path / "again.safetensors", job.output / "model.safetensors")
        assert again.read_bytes() == model.read_bytes()
        assert "job without shards" in audited.stderr


def test_killed_replicas_go_on_with_the_newest_checkpoint(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Job(tmp_path, f"spec.task.arguments={{step_seconds: 0.01, gate: {gate}}}") as job:
        wait_until(job.has_saved_some, "no checkpoint has a step in it")
        for name in ("replica-1", "coordinator", "replica-0"):
            job.kill(name)
        job.wait_until(lambda status: status["restarts"]["replica"] == 2)
        gate.touch()
        assert job.wait() == ExitCode.COMPLETE

        job.assert_complete()
        for name in ("replica-0", "replica-1"):
            before, _, _ = job.log(name).rpartition(" trains incarnation=")
            assert "took over a checkpoint" in "".join(before.splitlines()[-2:])


@pytest.mark.nightly
def test_a_stopped_job_goes_on_from_what_its_replica_wrote(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        wait_until(job.has_saved_some, "no checkpoint has a step in it")
        job.interrupt()
        assert job.wait() == ExitCode.INTERRUPTED
        saved = job.updates()

        job.resume()
        assert job.wait() == ExitCode.COMPLETE

        job.assert_complete()
        assert job.updates() > saved
        assert f"updates={saved}" in job.log("replica-0")
        # The others may begin when it has saved more already.
        for name in REPLICAS:
            assert "took over a checkpoint" in job.log(name)
