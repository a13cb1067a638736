"""Jobs of local steps: one replica is the plain loop, and kills lose what was not pushed alone."""

import re
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from builders import local_steps_jobs
from builders.at_night import others_at_night
from builders.commands import disttrain
from builders.local_steps_jobs import EPOCHS, SAMPLES, applied
from builders.runs import RunningJob
from disttrain.replay import outcome
from disttrain.replay.recording import NotReplayable
from disttrain.task import checks
from oracles import serial
from oracles.serial import Course
from tasks.proving import Proving

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS = 200
PROVING = local_steps_jobs.proving(
    """
    optimizer:
      name: AdamW
      arguments: {lr: 0.01, weight_decay: 0.1, betas: [0.8, 0.99]}
      clipNorm: 0.5
      schedule: {cosine: {samples: 1600, finalFraction: 0.1}}
    """,
    "count: 1",
)
COUNTING = local_steps_jobs.counting("steps: 6", "count: 2")


def clip(model: nn.Module, most: float) -> None:
    """As nn.utils.clip_grad_norm_, which also adds 1e-6 to the norm."""
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    norm = float(nn.utils.get_total_norm(gradients))
    for gradient in gradients:
        gradient.mul_(min(1.0, most / norm))


def plain_loop(dtype: torch.dtype) -> nn.Module:
    """What everybody writes, with the optimizer of the manifest."""
    course = Course(task=Proving())
    model = course.model().to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1, betas=(0.8, 0.99))
    scheduler = CosineAnnealingLR(optimizer, T_max=STEPS, eta_min=0.001)
    for values, labels in course.batches():
        optimizer.zero_grad()
        loss = checks.check_loss(course.task.loss(model, (values.to(dtype), labels)))
        loss.mean.backward()  # type: ignore[no-untyped-call]
        clip(model, 0.5)
        optimizer.step()
        scheduler.step()
    return model


def trained(job: RunningJob) -> dict[str, Tensor]:
    return load_file(job.output / "model.safetensors")


@pytest.mark.parametrize("adopt", ["replace", "add"])
@pytest.mark.parametrize(("precision", "nearness"), [("float32", 1e-6), ("float64", 1e-12)])
def test_one_replica_is_the_plain_loop(
    tmp_path: Path, adopt: str, precision: str, nearness: float
) -> None:
    settings = [
        f"spec.strategy.localSteps.precision={precision}",
        f"spec.strategy.localSteps.adopt={adopt}",
    ]
    with RunningJob(tmp_path, settings, PROVING) as job:
        assert job.wait() == 0
        assert job.summary()["steps"] == STEPS
        found = trained(job)

    assert serial.distance(found, plain_loop(getattr(torch, precision))) < nearness


def test_a_wire_that_carries_parameters_gives_the_bits_of_the_plain_loop(tmp_path: Path) -> None:
    settings = [
        "spec.strategy.localSteps.outer={blend: {}}",
        "spec.strategy.localSteps.optimizer={arguments: {lr: 0.01, betas: [0.8, 0.99]}}",
    ]
    with RunningJob(tmp_path, settings, PROVING) as job:
        assert job.wait() == 0
        found = trained(job)

    course = Course(task=Proving())
    plain = serial.plain_loop(course, partial(torch.optim.AdamW, lr=0.01, betas=(0.8, 0.99)))
    for name, wanted in plain.state_dict().items():
        assert torch.equal(found[name], wanted), name


@pytest.mark.parametrize(
    "settings",
    # A limit of the norm has `add`, which is the default.
    ["maximumNorm=0.5", *others_at_night("adopt=replace", "adopt=add", "pushAs=int8")],
)
def test_kills_of_every_role_lose_no_account(tmp_path: Path, settings: str) -> None:
    with RunningJob(tmp_path, [f"spec.strategy.localSteps.{settings}"], COUNTING) as job:
        summary = local_steps_jobs.kill_every_role(job, replicas=2)
        assert (summary["pushesShortened"] > 0) == settings.startswith("maximumNorm")
        job.assert_promises_held()


def test_a_killed_replica_does_again_what_it_had_not_pushed(tmp_path: Path) -> None:
    """One replica, so that each difference counts whole: every sample's count is exact."""
    with RunningJob(tmp_path, ["spec.replicas.count=1"], COUNTING) as job:
        job.wait_until(partial(applied, fraction=0.3))
        job.kill("replica-0")
        assert job.wait() == 0

        summary, counts = job.summary(), trained(job)["counts"]
        assert summary["restarts"]["replica"] == 1
        assert int(counts.min()) >= EPOCHS
        repeated = int(counts.sum()) - EPOCHS * SAMPLES
        most = summary["samplesRepeated"]
        assert most - summary["samplesPartiallyApplied"] <= repeated <= most
        job.assert_promises_held()


def test_the_audit_finds_each_epoch_whole_however_many_leases_are_in_a_push(
    tmp_path: Path,
) -> None:
    settings = ["spec.strategy.localSteps.steps=30", "spec.portionSize=16"]
    with RunningJob(tmp_path, settings, COUNTING) as job:
        assert job.wait() == 0
        job.assert_promises_held()

        assert re.search(
            rf"held +finished epochs are whole\n +{EPOCHS} epochs",
            (tmp_path / "audit").read_text(),
        )


def test_a_recorded_run_is_replayed_bit_for_bit(tmp_path: Path) -> None:
    settings = ["spec.record=true", "spec.replicas.count=2"]
    with RunningJob(tmp_path, settings, PROVING) as job:
        assert job.wait() == 0

    found = outcome.replay(job.output)

    assert found.is_same, found.differences
    assert found.updates_compared > 3 * (STEPS // 7)
    with pytest.raises(NotReplayable, match="without --serial"):
        outcome.replay(job.output, serial=True)


@pytest.mark.parametrize(
    "settings", others_at_night("quorum=2", "adopt=replace", "adopt=add", "fragments=7")
)
def test_a_run_with_evaluations_beside_its_steps_is_replayed_bit_for_bit(
    tmp_path: Path, settings: str
) -> None:
    changes = ["spec.record=true", "spec.replicas.count=2", f"spec.strategy.localSteps.{settings}"]
    changes += ["spec.evaluation={everySeconds: 0.1}"]
    with RunningJob(tmp_path, changes, PROVING) as job:
        assert job.wait() == 0
        assert job.summary()["evaluations"] > 1

        answer = disttrain("replay", job.output)
    assert answer.code == 0, answer


def test_a_replica_that_is_killed_in_an_evaluation_loses_no_account(tmp_path: Path) -> None:
    """The first one is the first replica's, and takes longer than a fifth of the job."""
    task = "spec.task.arguments={step_seconds: 0.02, measure_seconds: 1.0}"
    with RunningJob(tmp_path, [task, "spec.evaluation={everySeconds: 0.1}"], COUNTING) as job:
        job.wait_until(partial(applied, fraction=0.2))
        job.kill("replica-0")
        assert job.wait() == 0

        summary = job.summary()
        assert summary["evaluations"] >= 1
        assert summary["samples"] == EPOCHS * SAMPLES
        job.assert_promises_held()


def test_rounded_pushes_and_fetches_are_replayed_bit_for_bit(tmp_path: Path) -> None:
    settings = ["spec.record=true", "spec.replicas.count=2"]
    settings += ["spec.strategy.localSteps.pushAs=int8"]
    settings += ["spec.strategy.localSteps.fetchAs=bfloat16"]
    with RunningJob(tmp_path, settings, PROVING) as job:
        assert job.wait() == 0

        answer = disttrain("replay", job.output)
    assert answer.code == 0, answer


def test_a_job_is_resumed_by_the_rule_that_it_had(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [], COUNTING) as job:
        job.wait_until(lambda status: applied(status, 0.3) and status["checkpoints"] >= 1)
        job.interrupt()
        job.wait()
        job.resume()
        assert job.wait() == 0

        assert job.summary()["samples"] == EPOCHS * SAMPLES
        job.assert_promises_held()


def test_arguments_that_torch_refuses_are_refused_before_anything_starts(tmp_path: Path) -> None:
    settings = ["spec.strategy.localSteps.optimizer={name: SGD, arguments: {lr: -1.0}}"]
    with RunningJob(tmp_path, settings, COUNTING) as job:
        assert job.wait() == 2

        assert not job.output.exists()
        assert "spec.strategy.localSteps.optimizer" in job.printed()
        assert "arguments.lr: must be a number from 0 to 1e+15, got -1" in job.printed()
