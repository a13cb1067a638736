"""A job with a batch method that goes on by another manifest, and what its checkpoints share."""

from itertools import pairwise
from pathlib import Path

import pytest

from builders import batch_jobs
from builders.batch_jobs import BATCH_JOB
from builders.commands import disttrain
from builders.runs import RunningJob, set_field

pytestmark = pytest.mark.landing

SAMPLES = 240
SLOW = "spec.task.arguments={portion_seconds: 0.02}"
METHOD = "strategy.sandblaster.optimizer"
TOLERANCES = {"gradientTolerance": batch_jobs.GRADIENT_TOLERANCE, "changeTolerance": 0}


def stopped_after_eight_evaluations(folder: Path) -> Path:
    """The output of a run that was interrupted."""
    with RunningJob(folder, [SLOW], BATCH_JOB) as job:
        job.wait_until(lambda status: status["samples"] >= 8 * SAMPLES)
        job.interrupt()
        assert job.wait() == 130
        job.assert_promises_held()
        return job.output


@pytest.mark.parametrize(
    ("field", "value", "effect"),
    [
        (METHOD, {"conjugateGradient": TOLERANCES}, "begins again"),
        (METHOD, {"lbfgs": {"history": 3, **TOLERANCES}}, "goes on by it"),
        ("strategy.sandblaster.portionSize", 30, "begins again"),
    ],
)
def test_another_method_is_followed_and_said(
    tmp_path: Path, field: str, value: object, effect: str
) -> None:
    output = stopped_after_eight_evaluations(tmp_path)
    set_field(output, field, value)
    set_field(output, "task.arguments", {})
    with RunningJob.resumed(output) as job:
        assert job.wait() == 0

        found = batch_jobs.flat(batch_jobs.exported(job.output))
        summary = job.summary()
        assert summary["reason"] == "Converged"
        assert batch_jobs.distance(found, batch_jobs.serial_iterates()[-1]) < 1e-5
        (change,) = summary["sandblaster"]["changes"]
        assert effect in change
        assert change in job.printed()
        assert "the manifest has changed since the checkpoint" in job.log("coordinator")
        job.assert_promises_held()


def test_another_precision_is_refused_before_anything_starts(tmp_path: Path) -> None:
    output = stopped_after_eight_evaluations(tmp_path)
    set_field(output, "strategy.sandblaster.precision", "float32")
    code, _, said = disttrain("resume", output)
    assert (code, "Traceback" in said) == (2, False), said
    assert "spec.strategy.sandblaster.precision was float64 and is float32" in said
    assert "Set float64, or begin a new run" in said

    set_field(output, "strategy", {"downpour": {"optimizer": {"sgd": {"learningRate": 0.1}}}})
    set_field(output, "batchSize", 10)
    set_field(output, "stop", {"epochs": 3})
    code, _, said = disttrain("resume", output)
    assert (code, "Traceback" in said) == (2, False), said
    assert "spec.strategy was sandblaster and is downpour" in said


def test_checkpoints_share_the_history_that_they_have_in_common(tmp_path: Path) -> None:
    everything = f"spec.strategy.sandblaster.optimizer.lbfgs.history={100}"
    with RunningJob(tmp_path, [SLOW, everything], BATCH_JOB) as job:
        assert job.wait() == 0
        found = sorted((job.output / "checkpoints").glob("[0-9]*"))
        folders = [folder for folder in found if any(folder.glob("vector-*"))]
        vectors = [{path.name for path in folder.glob("vector-*")} for folder in folders]

        assert len(folders) > 1
        for one, other in pairwise(vectors):
            assert one <= other, "nothing is forgotten, so nothing is written again"
        for name in vectors[0]:
            assert all((folder / name).samefile(folders[0] / name) for folder in folders)
        assert disttrain("inspect", folders[-1]).code == 0
