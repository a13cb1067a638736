"""Processes of a running job are killed and paused; what was counted shows each update."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from safetensors.torch import load_file
from torch import Tensor

from builders.launches import wait_until
from builders.runs import RunningJob, set_field
from disttrain.checkpoint import names
from disttrain.coordinator.journal import journal

SAMPLES = 1024
EPOCHS = 2
SLOW = "spec.task.arguments={step_seconds: 0.02}"


def half_way(status: dict[str, Any]) -> bool:
    return bool(status.get("samples", 0) >= SAMPLES // 2)


def trained(job: RunningJob) -> dict[str, Tensor]:
    return load_file(job.output / "model.safetensors")


def is_there(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def assert_every_sample_was_applied(job: RunningJob, epochs: int = EPOCHS) -> None:
    """Nothing lost, and exactly as much repeated as the summary says.

    Samples of a push that a death cut short are on some shards only: repeated, but their elements
    show it only if they lie on such a shard.
    """
    counts = trained(job)["counts"]
    summary = job.summary()
    assert int(counts.min()) >= epochs, f"samples were skipped: {counts}"
    repeated = int(counts.sum()) - epochs * SAMPLES
    most = summary["samplesRepeated"]
    assert most - summary["samplesPartiallyApplied"] <= repeated <= most


def test_undisturbed_run_applies_every_sample_once_per_epoch(tmp_path: Path) -> None:
    with RunningJob(tmp_path) as job:
        assert job.wait() == 0

        summary = job.summary()
        model = trained(job)
        assert summary["phase"] == "Complete"
        assert model["counts"].eq(EPOCHS).all()
        assert model["first_updates"].eq(EPOCHS * SAMPLES / 8).all()
        assert model["last_updates"].eq(EPOCHS * SAMPLES / 8).all()
        assert (summary["samplesRepeated"], summary["updatesLost"]) == (0, 0)
        assert summary["restarts"] == {"coordinator": 0, "shard": 0, "replica": 0}
        assert summary["portionsRequeued"] == 0
        assert sum(summary["staleness"]["histogram"].values()) == 2 * EPOCHS * SAMPLES / 8
        job.assert_promises_held()


def test_killed_replica_is_replaced_and_its_portions_are_done(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [SLOW]) as job:
        job.wait_until(lambda status: half_way(status) and status["liveReplicas"] == 2)
        survivor = job.pid("replica-1")
        job.kill("replica-0")
        assert job.wait() == 0

        assert job.summary()["restarts"]["replica"] == 1
        assert job.pid("replica-1") == survivor
        assert_every_sample_was_applied(job)
        job.assert_promises_held()


@pytest.mark.parametrize("shard", [0, 1])
def test_killed_shard_comes_back_from_its_checkpoint(tmp_path: Path, shard: int) -> None:
    with RunningJob(tmp_path, [SLOW]) as job:
        job.wait_until(lambda status: half_way(status) and status["checkpoints"] >= 1)
        replicas = job.pid("replica-0"), job.pid("replica-1")
        job.kill(f"shard-{shard}")
        assert job.wait() == 0

        summary = job.summary()
        assert summary["restarts"] == {"coordinator": 0, "shard": 1, "replica": 0}
        assert replicas == (job.pid("replica-0"), job.pid("replica-1"))
        model = trained(job)
        killed, other = ("first_updates", "last_updates")[:: 1 if shard == 0 else -1]
        pushes = EPOCHS * SAMPLES / 8
        assert model[other].eq(pushes).all()
        assert model[killed].eq(pushes - summary["updatesLost"]).all()
        assert summary["updatesLost"] == sum(summary["updatesLostBySender"].values())
        job.assert_promises_held()


def test_shard_killed_before_there_is_a_checkpoint_gets_values_again(tmp_path: Path) -> None:
    places = tmp_path / "checkpoints"
    places.mkdir()
    # The first checkpoint cannot be made, and the next one is tried only ten seconds later.
    (places / names.staging(1)).touch()
    without = [f"spec.checkpoint.uri={places}", "spec.checkpoint.everySeconds=60"]
    with RunningJob(tmp_path, [SLOW, *without]) as job:
        job.wait_until(half_way)
        job.kill("shard-0")
        assert job.wait() == 0

        summary = job.summary()
        assert summary["restarts"] == {"coordinator": 0, "shard": 1, "replica": 1}
        assert summary["updatesLost"] > 0
        assert "the job fails" not in job.printed()
        job.assert_promises_held()


def test_shard_killed_as_soon_as_it_is_a_member_comes_back(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [SLOW]) as job:
        job.wait_until(lambda status: any(m["name"] == "shard-0" for m in status["members"]))
        job.kill("shard-0")
        assert job.wait() == 0

        if not job.summary()["updatesLost"]:
            assert_every_sample_was_applied(job)
        job.assert_promises_held()


def test_a_coordinator_that_dies_before_it_has_gone_on_from_a_checkpoint_tries_again(
    tmp_path: Path,
) -> None:
    with RunningJob(tmp_path, [SLOW]) as job:
        job.wait_until(half_way)
        job.interrupt()
        assert job.wait() == 130
        # Nothing can be claimed: the journal stays that of the run that was stopped.
        claims = job.output / "checkpoints" / journal.FOLDER / names.OWNERS
        shutil.rmtree(claims)
        claims.touch()
        gate = tmp_path / "gate"
        set_field(job.output, "task.arguments", {"gate": str(gate)})
        job.resume()
        wait_until(lambda: "starts again in" in job.printed(), "the coordinator has died")
        claims.unlink()

        job.wait_until(lambda status: status["liveReplicas"] == 2)
        assert "state=checkpoint" in job.log("coordinator")
        job.kill("coordinator")
        gate.touch()
        assert job.wait() == 0, job.printed()
        assert "state=journal" in job.log("coordinator")
        assert_every_sample_was_applied(job)
        job.assert_promises_held()


def test_killed_coordinator_goes_on_from_its_journal(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [SLOW]) as job:
        job.wait_until(half_way)
        members = [job.pid(name) for name in ("replica-0", "replica-1", "shard-0", "shard-1")]
        job.kill("coordinator")
        assert job.wait() == 0

        summary = job.summary()
        assert summary["restarts"]["coordinator"] == 1
        assert members == [job.pid(n) for n in ("replica-0", "replica-1", "shard-0", "shard-1")]
        assert summary["updatesLost"] == 0
        assert_every_sample_was_applied(job)
        job.assert_promises_held()


def test_a_killed_launcher_ends_a_job_that_can_be_resumed(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [SLOW, "spec.checkpoint.everySeconds=0.5"]) as job:
        job.wait_until(lambda status: half_way(status) and status["checkpoints"] >= 1)
        job.kill_launcher()
        job.resume()
        assert job.wait() == 0

        counts = trained(job)["counts"]
        summary = job.summary()
        assert (summary["phase"], int(counts.min()) >= EPOCHS) == ("Complete", True), counts
        # The shards' parts of a checkpoint may be some updates apart: a sample that either had is
        # counted as repeated, and shows only if its element lies on that one.
        assert 0 <= int(counts.sum()) - EPOCHS * SAMPLES <= summary["samplesRepeated"]
        job.assert_promises_held()


def test_late_pushes_of_a_paused_replica_are_applied_and_counted_as_repeated(
    tmp_path: Path,
) -> None:
    lease = ["spec.coordinator.leaseSeconds=1", "spec.coordinator.memberTimeoutSeconds=60"]
    # At the end of a job who is silent is waited for no longer.
    with RunningJob(tmp_path, [SLOW, "spec.stop.epochs=6", *lease]) as job:
        job.wait_until(half_way)
        job.signal("replica-0", signal.SIGSTOP)
        job.wait_until(lambda status: status["portionsRequeued"] >= 1)
        job.signal("replica-0", signal.SIGCONT)
        assert job.wait() == 0

        summary = job.summary()
        assert summary["restarts"]["replica"] == 0
        assert summary["portionsRequeued"] >= 1
        assert_every_sample_was_applied(job, epochs=6)
        job.assert_promises_held()


def test_replica_declared_dead_is_fenced(tmp_path: Path) -> None:
    limits = [
        "spec.coordinator.leaseSeconds=2",
        "spec.coordinator.memberTimeoutSeconds=4",
        "spec.stop.epochs=6",
    ]
    with RunningJob(tmp_path, [SLOW, *limits]) as job:
        job.wait_until(half_way)
        # The launcher would kill it before it can say anything.
        os.kill(job.launcher, signal.SIGSTOP)
        fenced = psutil.Process(job.signal("replica-0", signal.SIGSTOP))
        job.wait_until(lambda _: "lost member=replica-0" in job.log("coordinator"))
        fenced.resume()
        job.wait_until(lambda _: not is_there(fenced))
        os.kill(job.launcher, signal.SIGCONT)
        assert job.wait() == 0

        assert_every_sample_was_applied(job, epochs=6)
        assert job.summary()["restarts"]["replica"] == 1
        job.assert_promises_held()


def test_replica_with_gradients_that_are_not_finite_fails_the_job(tmp_path: Path) -> None:
    poison = "spec.task.arguments={nan_from_sample: 0}"
    with RunningJob(tmp_path, [poison, "spec.failurePolicy.maxNonFiniteGradients=5"]) as job:
        assert job.wait() == 1

        summary = job.summary()
        assert (summary["phase"], summary["reason"]) == ("Failed", "Diverged")
        assert summary["nonFiniteGradients"] >= 5
        assert set(summary["nonFiniteGradientsByReplica"]) <= {"replica-0", "replica-1"}
        assert "replica-" in job.printed()
        job.assert_promises_held()
