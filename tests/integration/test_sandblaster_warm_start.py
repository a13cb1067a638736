"""A batch method with a warm start, in real processes, some of which are killed."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from builders import batch_jobs
from builders.at_night import at_night, others_at_night
from builders.batch_jobs import BATCH_JOB
from builders.commands import disttrain
from builders.runs import RunningJob, has_restarted, set_field, set_shards
from disttrain.checkpoint import stores

pytestmark = pytest.mark.landing

SAMPLES = 1000
_WARM_START = "spec.strategy.sandblaster.warmStart="
DOWNPOUR = (
    f"{_WARM_START}{{samples: {SAMPLES}, batchSize: 8, "
    "downpour: {optimizer: {adagrad: {learningRate: 0.05}}}}"
)
SGD = f"{_WARM_START}{{samples: {SAMPLES}, batchSize: 8, sgd: {{learningRate: 0.1}}}}"
PREDICTED = (
    f"{_WARM_START}{{samples: {SAMPLES}, batchSize: 8, "
    "downpour: {optimizer: {momentum: {learningRate: 0.01, momentum: 0.5}}, "
    "staleness: {predict: {}}}}"
)
SLOW = "spec.task.arguments={portion_seconds: 0.02}"
SLOWER = "spec.task.arguments={portion_seconds: 0.2}"
"""The warm start takes some ten seconds: it is stopped long before its end."""
OVER = "warm start is processed"

Moment = Callable[[RunningJob], None]


def before(job: RunningJob) -> None:
    job.wait_until(lambda status: status["samples"] >= SAMPLES // 4)


def at_the_end(job: RunningJob) -> None:
    job.wait_until(lambda _: OVER in job.log("coordinator"))


def after(job: RunningJob) -> None:
    job.wait_until(lambda status: _batch(status).get("iteration", 0) >= 2)


def _batch(status: dict[str, Any]) -> dict[str, Any]:
    return status.get("sandblaster") or {}


def rules_of_checkpoints(job: RunningJob) -> list[str]:
    return [
        found.manifest.update_rule for found in stores.in_folder(job.output / "checkpoints").list()
    ]


def assert_converged(job: RunningJob) -> None:
    assert job.wait() == 0
    assert job.summary()["reason"] == "Converged"
    reached = batch_jobs.flat(batch_jobs.exported(job.output))
    assert batch_jobs.distance(reached, batch_jobs.serial_iterates()[-1]) < 1e-5
    job.assert_promises_held()


def assert_resumes_by_no_other_optimizer(job: RunningJob) -> None:
    """It is refused before anything starts, and the manifest is put back."""
    manifest = job.output / "job.yaml"
    written = manifest.read_text()
    warm_start = {"samples": SAMPLES, "batchSize": 8, "sgd": {"learningRate": 0.1}}
    set_field(job.output, "strategy.sandblaster.warmStart", warm_start)
    code, _, said = disttrain("resume", job.output)
    assert (code, "Traceback" in said) == (2, False), said
    assert "spec.strategy.sandblaster.warmStart.sgd was adagrad and is sgd" in said
    assert "Set adagrad, or begin a new run" in said
    manifest.write_text(written)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    with RunningJob(tmp_path_factory.mktemp("undisturbed"), [SGD], BATCH_JOB) as job:
        assert_converged(job)
        return batch_jobs.exported(job.output)


def test_downpour_is_followed_by_the_method(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [DOWNPOUR, SLOW, "spec.checkpoint.keepLast=100"], BATCH_JOB) as job:
        job.wait_until(lambda status: _batch(status).get("stage") == "warm_start")
        assert_converged(job)
        summary, rules = job.summary(), rules_of_checkpoints(job)

    # 240 samples of data, in each evaluation.
    assert summary["samples"] == SAMPLES + 240 * summary["sandblaster"]["evaluations"]
    assert summary["sandblaster"]["warmStartSamples"] == SAMPLES
    assert summary["sandblaster"]["returns"] == 0
    assert rules == sorted(rules)
    assert set(rules) == {"adagrad", "lbfgs"}


@pytest.mark.parametrize(
    ("moment", "process"),
    [
        (before, "replica-0"),
        (at_the_end, "shard-1"),
        *at_night((before, "shard-0"), (at_the_end, "coordinator")),
    ],
)
def test_a_process_may_die_before_the_method_begins(
    tmp_path: Path, moment: Moment, process: str
) -> None:
    with RunningJob(tmp_path, [DOWNPOUR, SLOW], BATCH_JOB) as job:
        moment(job)
        job.kill(process)
        assert_converged(job)

        role = process.partition("-")[0]
        assert job.summary()["restarts"][role] == 1
        assert job.summary()["sandblaster"]["iteration"] > 0


def test_the_method_begins_with_parameters_although_replicas_computed_with_a_prediction(
    tmp_path: Path,
) -> None:
    """Who comes back later begins with the warm start, too, and asks for a prediction."""
    with RunningJob(tmp_path, [PREDICTED, SLOW, "spec.checkpoint.keepLast=100"], BATCH_JOB) as job:
        after(job)
        job.kill("replica-1")
        assert_converged(job)

        assert job.summary()["restarts"]["replica"] == 1
        assert set(rules_of_checkpoints(job)) == {"predicted_momentum", "lbfgs"}


@pytest.mark.parametrize("process", others_at_night("coordinator", "shard-1"))
def test_what_dies_later_changes_no_bit(
    tmp_path: Path, undisturbed: dict[str, Tensor], process: str
) -> None:
    with RunningJob(tmp_path, [SGD, SLOW], BATCH_JOB) as job:
        after(job)
        job.kill(process)
        assert_converged(job)
        assert batch_jobs.same_bits(batch_jobs.exported(job.output), undisturbed)


def test_a_job_that_was_stopped_goes_on_in_its_warm_start(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [DOWNPOUR, SLOWER], BATCH_JOB) as job:
        before(job)
        job.interrupt()
        job.wait()
        assert job.summary()["phase"] == "Stopped"
        assert set(rules_of_checkpoints(job)) == {"adagrad"}
        assert_resumes_by_no_other_optimizer(job)
        set_field(job.output, "task.arguments", {"portion_seconds": 0})
        job.resume()
        assert_converged(job)


@pytest.mark.parametrize(("shards", "method"), [(3, DOWNPOUR), *at_night((1, SGD))])
def test_a_job_that_was_stopped_in_its_warm_start_goes_on_with_other_shards(
    tmp_path: Path, shards: int, method: str
) -> None:
    with RunningJob(tmp_path, [method, SLOWER], BATCH_JOB) as job:
        before(job)
        job.interrupt()
        assert job.wait() == 130
        stopped = job.summary()["samples"]
        assert SAMPLES // 4 <= stopped < SAMPLES
    set_shards(job.output, shards)
    set_field(job.output, "task.arguments", {"portion_seconds": 0})
    with RunningJob.resumed(job.output) as job:
        assert_converged(job)
        summary = job.summary()

    # 240 samples of data, in each evaluation.
    assert summary["samples"] == SAMPLES + 240 * summary["sandblaster"]["evaluations"]
    assert (summary["samplesRepeated"], summary["updatesLost"]) == (0, 0)


@pytest.mark.parametrize("moment", others_at_night(at_the_end, before))
def test_a_shard_that_is_told_to_end_alone_is_replaced(tmp_path: Path, moment: Moment) -> None:
    with RunningJob(tmp_path, [DOWNPOUR, SLOW], BATCH_JOB) as job:
        moment(job)
        job.signal("shard-0", signal.SIGTERM)
        job.wait_until(has_restarted("shard"))
        assert_converged(job)


def test_a_job_that_was_stopped_later_goes_on_to_the_same_bits(
    tmp_path: Path, undisturbed: dict[str, Tensor]
) -> None:
    with RunningJob(tmp_path, [SGD, SLOW], BATCH_JOB) as job:
        after(job)
        job.interrupt()
        job.wait()
        assert job.summary()["phase"] == "Stopped"
        job.resume()
        assert_converged(job)
        assert batch_jobs.same_bits(batch_jobs.exported(job.output), undisturbed)
