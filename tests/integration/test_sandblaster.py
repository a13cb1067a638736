"""Whole jobs with a batch method, in real processes: the result is that of one serial run."""

from pathlib import Path

import pytest

from builders import batch_jobs
from builders.batch_jobs import BATCH_JOB
from builders.runs import RunningJob

SINGLE = "spec.strategy.sandblaster.precision=float32"


@pytest.mark.parametrize(("shards", "replicas"), [(1, 1), (2, 2), (3, 3), (5, 4)])
def test_the_job_converges_to_what_serial_lbfgs_finds(
    tmp_path: Path, shards: int, replicas: int
) -> None:
    counts = [f"spec.parameterServer.shards={shards}", f"spec.replicas.count={replicas}"]
    with RunningJob(tmp_path, counts, BATCH_JOB) as job:
        assert job.wait() == 0

        serial = batch_jobs.serial_iterates()
        found = batch_jobs.flat(batch_jobs.exported(job.output))
        summary = job.summary()
        assert (summary["phase"], summary["reason"]) == ("Complete", "Converged")
        assert batch_jobs.distance(found, serial[-1]) < 1e-9
        assert summary["sandblaster"]["iteration"] == len(serial) - 1
        job.assert_promises_held()


def test_the_same_manifest_gives_the_same_bits_however_many_replicas(tmp_path: Path) -> None:
    results = []
    for replicas in (1, 4):
        folder = tmp_path / str(replicas)
        folder.mkdir()
        drawn = ["spec.task.arguments={dropout: 0.1, noise: 0.1}", "spec.stop.iterations=8"]
        with RunningJob(folder, [f"spec.replicas.count={replicas}", *drawn], BATCH_JOB) as job:
            assert job.wait() == 0
            results.append(batch_jobs.exported(job.output))

    assert batch_jobs.same_bits(*results)


def test_a_batch_of_one_group_is_computed_once_and_copied(tmp_path: Path) -> None:
    one_group = "spec.strategy.sandblaster.pushEveryPortions=100"
    with RunningJob(tmp_path, [one_group], BATCH_JOB) as job:
        assert job.wait() == 0

        found = batch_jobs.flat(batch_jobs.exported(job.output))
        assert batch_jobs.distance(found, batch_jobs.serial_iterates()[-1]) < 1e-9
        job.assert_promises_held()


def test_single_precision_comes_as_near_as_it_can(tmp_path: Path) -> None:
    tolerance = "spec.strategy.sandblaster.optimizer.lbfgs.gradientTolerance=0.0001"
    with RunningJob(tmp_path, [SINGLE, tolerance], BATCH_JOB) as job:
        assert job.wait() == 0

        found = batch_jobs.flat(batch_jobs.exported(job.output))
        assert job.summary()["reason"] == "Converged"
        assert batch_jobs.distance(found, batch_jobs.serial_iterates()[-1]) < 1e-2


@pytest.mark.parametrize("method", ["conjugateGradient", "gradientDescent"])
def test_other_methods_run_in_the_same_frame(tmp_path: Path, method: str) -> None:
    chosen = f"spec.strategy.sandblaster.optimizer={{{method}: {{gradientTolerance: 0.001}}}}"
    with RunningJob(tmp_path, [chosen], BATCH_JOB) as job:
        assert job.wait() == 0

        found = batch_jobs.flat(batch_jobs.exported(job.output))
        assert job.summary()["reason"] in {"Converged", "Iterations"}
        assert batch_jobs.distance(found, batch_jobs.serial_iterates()[-1]) < 0.2


def test_evaluations_beside_training_change_nothing(tmp_path: Path) -> None:
    results = []
    for name, given in (("without", "null"), ("with", "{everyEpochs: 3}")):
        folder = tmp_path / name
        folder.mkdir()
        with RunningJob(folder, [f"spec.evaluation={given}"], BATCH_JOB) as job:
            assert job.wait() == 0
            assert job.summary()["finalMeasures"]["accuracy"] > 0.5
            results.append(batch_jobs.exported(job.output))

    assert batch_jobs.same_bits(*results)


def test_batch_norm_in_training_mode_is_refused_with_the_remedy(tmp_path: Path) -> None:
    task = "spec.task={entrypoint: 'normalised:Normalised'}"
    with RunningJob(tmp_path, [task], BATCH_JOB) as job:
        assert job.wait() == 1

        assert job.summary()["reason"] == "TaskError"
        assert "BatchNorm1d" in job.printed()
        assert "GroupNorm" in job.printed()
