"""Jobs that refuse gradients which are too old: their samples go back and are processed once."""

from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import Tensor

from builders.at_night import others_at_night
from builders.runs import RunningJob
from disttrain.audit import reading
from disttrain.parameter_server.ledger import Kind

SAMPLES, EPOCHS = 1024, 2
ASSIGNMENTS = (
    "spec.replicas.count=3",
    "spec.strategy.downpour.staleness.maximum.updates=1",
    "spec.task.arguments={step_seconds: 0.01}",
)


def counts(job: RunningJob) -> Tensor:
    return load_file(job.output / "model.safetensors")["counts"]


def refused(job: RunningJob) -> int:
    evidence = reading.read(job.output)
    return sum(len(shard.of(Kind.REFUSED)) for shard in evidence.shard_incarnations)


@pytest.mark.parametrize("audit", ["full", "summary"])
def test_with_one_shard_every_sample_is_applied_exactly_once(tmp_path: Path, audit: str) -> None:
    with RunningJob(
        tmp_path, [*ASSIGNMENTS, "spec.parameterServer.shards=1", f"spec.audit={audit}"]
    ) as job:
        assert job.wait() == 0

        assert refused(job) > 10
        assert counts(job).eq(EPOCHS).all()
        summary = job.summary()
        assert (summary["samples"], summary["samplesRepeated"]) == (EPOCHS * SAMPLES, 0)
        assert summary["portionsRequeued"] > 0
        assert max(map(int, summary["staleness"]["histogram"])) <= 1
        job.assert_promises_held()


@pytest.mark.parametrize("audit", ["full", "summary"])
def test_with_several_shards_none_is_left_out(tmp_path: Path, audit: str) -> None:
    with RunningJob(
        tmp_path, [*ASSIGNMENTS, "spec.parameterServer.shards=3", f"spec.audit={audit}"]
    ) as job:
        assert job.wait() == 0

        assert refused(job) > 10
        assert int(counts(job).min()) >= EPOCHS
        assert job.summary()["samples"] == EPOCHS * SAMPLES
        job.assert_promises_held()


@pytest.mark.parametrize("audit", others_at_night("full", "summary"))
def test_what_single_shards_had_applied_is_told_from_what_a_resume_repeats(
    tmp_path: Path, audit: str
) -> None:
    with RunningJob(
        tmp_path,
        [
            *ASSIGNMENTS,
            "spec.parameterServer.shards=3",
            "spec.stop.epochs=6",
            f"spec.audit={audit}",
        ],
    ) as job:
        job.wait_until(lambda status: status.get("samples", 0) >= SAMPLES)
        job.interrupt()
        job.wait()
        job.resume()
        assert job.wait() == 0

        assert refused(job) > 10
        assert int(counts(job).min()) >= 6
        assert job.summary()["samples"] == 6 * SAMPLES
        job.assert_promises_held()


def test_a_replica_that_dies_meanwhile_leaves_nothing_out(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [*ASSIGNMENTS, "spec.parameterServer.shards=1"]) as job:
        job.wait_until(lambda status: status.get("samples", 0) >= SAMPLES // 2)
        job.kill("replica-1")
        assert job.wait() == 0

        assert int(counts(job).min()) >= EPOCHS
        assert int(counts(job).sum()) == EPOCHS * SAMPLES + job.summary()["samplesRepeated"]
        job.assert_promises_held()


@pytest.mark.parametrize("remedy", ["delayCompensation", "predictAndCompensate"])
def test_compensation_survives_the_death_of_every_role(tmp_path: Path, remedy: str) -> None:
    downpour = (
        "optimizer: {momentum: {learningRate: 0.001, momentum: 0.5}}, "
        f"staleness: {{{remedy}: {{strength: 0.5, adaptive: {{}}}}}}"
    )
    with RunningJob(
        tmp_path,
        [
            f"spec.strategy.downpour={{{downpour}}}",
            "spec.checkpoint.everySeconds=0.5",
            "spec.task.arguments={step_seconds: 0.02}",
            "spec.stop.epochs=4",
        ],
    ) as job:
        job.wait_until(lambda status: status.get("checkpoint", 0) and status["samples"] > 0)
        job.kill("shard-0")
        job.wait_until(lambda _: (job.output / "ledger" / "shard-0.i2.bin").exists())
        job.kill("replica-1")
        job.kill("coordinator")
        assert job.wait() == 0

        assert job.summary()["samples"] == 4 * SAMPLES
        assert counts(job).isfinite().all()
        job.assert_promises_held()
