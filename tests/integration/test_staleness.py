"""Jobs that refuse gradients which are too old: their samples go back and are processed once."""

import signal
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
    exported = load_file(job.output / "model.safetensors")
    (counted,) = (value for name, value in exported.items() if name.startswith("counts"))
    return counted


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


@pytest.mark.parametrize("audit", others_at_night("full", "summary"))
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


OF_TWO_PROCESSES = (
    *ASSIGNMENTS,
    "spec.task.entrypoint=counting:CountingInParts",
    "spec.parameterServer.shards=2",
    "spec.replicas.count=2",
    "spec.stop.epochs=1",
)
PARTITIONS = (*OF_TWO_PROCESSES, "spec.replicas.partitions=2")
RANKS = (
    *OF_TWO_PROCESSES,
    "spec.strategy={localSteps: {steps: 2, maximumAge: 1, optimizer: {name: SGD, "
    "arguments: {lr: 1.0}}}}",
    "spec.replicas.count=3",
    "spec.replicas.ranks=2",
    "spec.replicas.inner=fsdp2",
)


OF_EITHER_KIND = pytest.mark.parametrize(
    ("processes", "least"), [(PARTITIONS, 1.0), (RANKS, 0.1)], ids=["partitions", "ranks"]
)
"""And how often each sample counts at least: with `average`, a push is a part of all of them."""


@pytest.mark.parametrize("audit", others_at_night("full", "summary"))
@OF_EITHER_KIND
def test_all_processes_go_back_to_what_each_has_pushed(
    tmp_path: Path, processes: tuple[str, ...], least: float, audit: str
) -> None:
    with RunningJob(tmp_path, [*processes, f"spec.audit={audit}"]) as job:
        assert job.wait() == 0

        assert refused(job) > 5
        summary = job.summary()
        assert (summary["samples"], summary["samplesRepeated"]) == (SAMPLES, 0)
        assert float(counts(job).min()) >= least
        job.assert_promises_held()


WAITS = (
    "spec.strategy.downpour.maxInFlight=0",
    "spec.strategy.downpour.staleness.maximum={updates: 2, policy: wait}",
)


@pytest.mark.parametrize(
    ("assignments", "epochs"),
    [
        ((*ASSIGNMENTS, "spec.parameterServer.shards=3"), EPOCHS),
        ((*PARTITIONS, "spec.replicas.count=3"), 1),
    ],
    ids=["shards", "partitions"],
)
def test_pushes_that_wait_are_applied_once_everywhere(
    tmp_path: Path, assignments: tuple[str, ...], epochs: int
) -> None:
    with RunningJob(tmp_path, [*assignments, *WAITS]) as job:
        assert job.wait() == 0

        # Who pauses for longer than others wait may be refused.
        assert refused(job) < 10
        assert int(counts(job).min()) >= epochs
        summary = job.summary()
        assert (summary["samples"], summary["samplesRepeated"]) == (epochs * SAMPLES, 0)
        assert max(map(int, summary["staleness"]["histogram"])) <= 2
        job.assert_promises_held()


def test_who_hangs_is_not_waited_for_and_goes_on_afterwards(tmp_path: Path) -> None:
    # Long before it counts as dead.
    patience = "spec.coordinator.memberTimeoutSeconds=300"
    with RunningJob(
        tmp_path, [*ASSIGNMENTS, *WAITS, "spec.parameterServer.shards=2", patience]
    ) as job:
        job.wait_until(lambda status: status.get("samples", 0) >= SAMPLES // 4)
        job.signal("replica-1", signal.SIGSTOP)
        before = job.status()["samples"]
        job.wait_until(lambda status: status.get("samples", 0) >= before + SAMPLES // 4)
        job.signal("replica-1", signal.SIGCONT)
        assert job.wait() == 0

        assert job.summary()["restarts"]["replica"] == 0
        assert int(counts(job).min()) >= EPOCHS
        assert job.summary()["samples"] == EPOCHS * SAMPLES
        job.assert_promises_held()


@pytest.mark.parametrize("process", others_at_night("replica-1-1", "replica-1-0"))
@OF_EITHER_KIND
def test_one_of_them_that_dies_meanwhile_leaves_nothing_out(
    tmp_path: Path, processes: tuple[str, ...], least: float, process: str
) -> None:
    with RunningJob(tmp_path, processes) as job:
        job.wait_until(lambda status: status.get("samples", 0) >= SAMPLES // 4)
        job.kill(process)
        assert job.wait() == 0

        assert refused(job) > 0
        assert job.summary()["samples"] == SAMPLES
        assert float(counts(job).min()) >= least
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
