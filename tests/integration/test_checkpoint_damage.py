"""Checkpoints that are damaged, of another model, or do not fit on the disk."""

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file

from builders import small_disk as small_disk_builder
from builders.commands import disttrain
from builders.damage import flip, flip_newest, stop_between_checkpoints
from builders.runs import RunningJob, set_field
from disttrain.cli.checkpoints import write_model

SAMPLES = 1024
EPOCHS = 2
SLOW = "spec.task.arguments={step_seconds: 0.02}"
SLOWER = "spec.task.arguments={step_seconds: 0.1}"
OFTEN_AND_LONG = (
    SLOW,
    "spec.stop.epochs=6",
    "spec.checkpoint.everySeconds=0.4",
    # A coordinator that is stopped for longer is taken for one that hangs.
    "spec.coordinator.memberTimeoutSeconds=120",
)


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a run that was interrupted and has several checkpoints."""
    folder = tmp_path_factory.mktemp("stopped")
    with RunningJob(folder, [SLOWER, "spec.checkpoint.everySeconds=0.4"]) as job:
        job.wait_until(lambda status: status["checkpoints"] >= 3)
        job.interrupt()
        assert job.wait() == 130
        job.assert_promises_held()
        return job.output


@pytest.fixture
def run(stopped_run: Path, tmp_path: Path) -> Path:
    """A copy of the stopped run, to be damaged."""
    return Path(shutil.copytree(stopped_run, tmp_path / "run"))


def checkpoints(run: Path) -> list[Path]:
    """Oldest first."""
    return sorted((run / "checkpoints").glob("[0-9]*"))


def truncate(checkpoint: Path) -> None:
    file = checkpoint / "part-00000.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


def halve(checkpoint: Path) -> None:
    (checkpoint / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flip, "part-00001.safetensors: its hash is"),
        (truncate, "part-00000.safetensors: it has"),
        (halve, "it was not written to its end"),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_every_command_and_the_previous_one_offered(
    run: Path, damage: Callable[[Path], None], reason: str
) -> None:
    *_, previous, newest = checkpoints(run)
    damage(newest)
    out = run.parent / "out.safetensors"

    for command in (("export", newest, out), ("evaluate", newest), ("resume", run)):
        code, _, said = disttrain(*command)
        assert (code, "Traceback" in said) == (1, False), said
        assert reason in said
        assert f"the one before it is whole: {previous}" in said
    assert not out.exists()
    assert newest.exists()
    assert disttrain("export", previous, out).code == 0


def test_the_run_goes_on_from_the_previous_checkpoint_once_the_damaged_one_is_deleted(
    run: Path,
) -> None:
    shutil.rmtree(checkpoints(run)[-1])
    set_field(run, "task.arguments", {})
    with RunningJob.resumed(run) as job:
        assert job.wait() == 0

        counts = load_file(job.output / "model.safetensors")["counts"]
        summary = job.summary()
        assert int(counts.min()) >= EPOCHS
        # The shards' parts may be some updates apart. A sample counts as repeated when any shard
        # had it already; its element shows that only if it lies on such a shard.
        repeated = int(counts.sum()) - EPOCHS * SAMPLES
        assert 0 <= repeated <= summary["samplesRepeated"]
        job.assert_promises_held()


def test_a_checkpoint_of_another_model_names_the_first_difference(run: Path) -> None:
    task = run.parent / "counting.py"
    written = (Path(__file__).parents[1] / "tasks" / "counting.py").read_text()
    task.write_text(written.replace("BLOCK = 64", "BLOCK = 48"))
    record = run / "run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"task_folder": str(run.parent)}))

    before = [path.name for path in checkpoints(run)]
    for command in (("evaluate", run), ("resume", run)):
        code, _, said = disttrain(*command)
        assert code == 1
        assert "'first_updates'" in said
        assert "64" in said
        assert "48" in said
    assert [path.name for path in checkpoints(run)] == before


def test_a_shard_that_dies_goes_on_from_the_checkpoint_before_a_damaged_one(tmp_path: Path) -> None:
    with RunningJob(tmp_path, OFTEN_AND_LONG) as job:
        job.wait_until(lambda status: status["checkpoints"] >= 2)
        # None is committed before the shard is back: it would have to write its part.
        stop_between_checkpoints(job)
        flip_newest(job.output / "checkpoints")
        job.kill("shard-1")
        job.signal("coordinator", signal.SIGCONT)
        job.wait_until(lambda _: "the one before it is tried" in job.log("shard-1"))
        assert job.wait() == 0, job.printed()

        summary = job.summary()
        assert summary["phase"] == "Complete"
        assert summary["checkpointsDamaged"] == 1
        assert summary["restarts"]["shard"] == 1
        assert "checkpoint is damaged" in job.log("coordinator")
        job.assert_promises_held()


@pytest.mark.parametrize(
    ("damage", "reason"), [(flip, "its hash is"), (halve, "its manifest cannot be read")]
)
def test_a_job_without_a_whole_checkpoint_says_so(
    tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    """Nothing is left to go on from. `disttrain audit` would find the damage, as it should."""
    with RunningJob(tmp_path, OFTEN_AND_LONG) as job:
        job.wait_until(lambda status: status["checkpoints"] >= 1)
        stop_between_checkpoints(job)
        for folder in checkpoints(job.output):
            damage(folder)
        job.kill("shard-1")
        job.signal("coordinator", signal.SIGCONT)
        job.wait_until(lambda _: "a restart would not help" in job.log("shard-1"))
        assert job.wait() == 1

        summary = job.summary()
        assert (summary["phase"], summary["reason"]) == ("Failed", "CheckpointDamaged")
        assert reason in summary["message"]


def test_a_job_whose_journal_is_deleted_says_so(tmp_path: Path) -> None:
    """`disttrain audit` would find it missing, as it should."""
    with RunningJob(tmp_path, OFTEN_AND_LONG) as job:
        job.wait_until(lambda status: status["checkpoints"] >= 1)
        journal = job.output / "checkpoints" / "journal"
        journal.rename(tmp_path / "elsewhere")
        assert job.wait() == 1

        summary = job.summary()
        assert summary["phase"] == "Failed"
        assert f"{journal} was deleted or renamed" in summary["message"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    with small_disk_builder.mounted(tmp_path / "disk") as disk:
        yield disk


@pytest.mark.landing
def test_training_goes_on_while_the_disk_is_full(small_disk: Path, tmp_path: Path) -> None:
    places = [f"spec.checkpoint.uri={small_disk}", "spec.checkpoint.everySeconds=0.3"]
    ballast = small_disk / "ballast"
    with RunningJob(tmp_path, [SLOW, "spec.stop.epochs=10", *places]) as job:
        job.wait_until(lambda status: status["checkpoints"] >= 1)
        small_disk_builder.fill(ballast)
        full = job.wait_until(lambda status: status["checkpointFailures"] >= 2)
        old = sorted(small_disk.glob("[0-9]*"))[-1]
        write_model(str(old), tmp_path / "old.safetensors")
        job.wait_until(lambda status: status["samples"] > full["samples"] + 100)
        ballast.unlink()
        job.wait_until(lambda status: status["checkpoints"] > full["checkpoints"])
        assert job.wait() == 0

        summary = job.summary()
        assert summary["checkpointFailures"] >= 2
        assert summary["restarts"] == {"coordinator": 0, "shard": 0, "replica": 0}
        counts = load_file(job.output / "model.safetensors")["counts"]
        assert counts.eq(10).all()
        job.assert_promises_held()
