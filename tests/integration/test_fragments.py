"""Jobs of local steps in fragments: exact accounts whoever is killed, and records that replay."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from builders import local_steps_jobs
from builders.at_night import others_at_night
from builders.commands import disttrain
from builders.local_steps_jobs import EPOCHS, SAMPLES, applied
from builders.runs import RunningJob, set_field, set_shards
from disttrain.task import checks
from oracles import serial
from oracles.serial import Course
from tasks.proving import Proving

STEPS = 200
pytestmark = pytest.mark.usefixtures("one_thread")

PROVING = local_steps_jobs.proving(
    """
    steps: 8
    fragments: 4
    optimizer:
      name: AdamW
      arguments: {lr: 0.01, weight_decay: 0.1, betas: [0.8, 0.99]}
    """,
    "count: 1",
)
COUNTING = local_steps_jobs.counting("{steps: 6, fragments: 3}", "count: 3")
_LOCAL = "spec.strategy.localSteps"


def plain_loop(dtype: torch.dtype) -> nn.Module:
    course = Course(task=Proving())
    model = course.model().to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1, betas=(0.8, 0.99))
    for values, labels in course.batches():
        optimizer.zero_grad()
        loss = checks.check_loss(course.task.loss(model, (values.to(dtype), labels)))
        loss.mean.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


@pytest.mark.parametrize("adopt", ["replace", "add"])
@pytest.mark.parametrize(("precision", "nearness"), [("float32", 1e-6), ("float64", 1e-12)])
def test_one_replica_is_the_plain_loop(
    tmp_path: Path, adopt: str, precision: str, nearness: float
) -> None:
    settings = [f"{_LOCAL}.precision={precision}", f"{_LOCAL}.adopt={adopt}"]
    with RunningJob(tmp_path, settings, PROVING) as job:
        assert job.wait() == 0
        assert job.summary()["steps"] == STEPS
        found = load_file(job.output / "model.safetensors")

    assert serial.distance(found, plain_loop(getattr(torch, precision))) < nearness


@pytest.mark.parametrize(
    "settings",
    others_at_night(["quorum=2", "fetchAs=bfloat16"], ["adopt=replace"], ["pushAs=int8"]),
)
def test_kills_of_every_role_lose_no_account(tmp_path: Path, settings: list[str]) -> None:
    with RunningJob(tmp_path, [f"{_LOCAL}.{each}" for each in settings], COUNTING) as job:
        local_steps_jobs.kill_every_role(job, replicas=3)
        job.assert_promises_held()


@pytest.mark.parametrize("rank", others_at_night(1, 0))
def test_kills_lose_no_account_of_groups_that_merge_fragments_by_a_quorum(
    tmp_path: Path, rank: int
) -> None:
    """Whichever rank of a replica dies, its group restarts, and what it pushed counts."""
    gate = tmp_path / "gate"
    settings = [
        f"{_LOCAL}.quorum=2",
        "spec.replicas.ranks=2",
        "spec.replicas.inner=ddp",
        f"spec.task.arguments.gate={gate}",
    ]
    with RunningJob(tmp_path, settings, COUNTING) as job:
        local_steps_jobs.kill_every_role(job, replicas=3, replica=f"replica-0-{rank}", gate=gate)
        job.assert_promises_held()


@pytest.mark.parametrize("settings", others_at_night([], [f"{_LOCAL}.quorum=2"]))
def test_a_job_goes_on_with_another_number_of_shards(tmp_path: Path, settings: list[str]) -> None:
    """A fragment is the same elements there: what waits for a merge stays where it was."""
    with RunningJob(tmp_path, settings, COUNTING) as job:
        job.wait_until(lambda status: applied(status, 0.3) and status["checkpoints"] >= 1)
        job.interrupt()
        job.wait()
        set_shards(job.output, 3)
        job.resume()
        assert job.wait() == 0

        assert job.summary()["samples"] == EPOCHS * SAMPLES
        job.assert_promises_held()


def test_with_a_quorum_a_job_does_not_go_on_in_other_fragments(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [f"{_LOCAL}.quorum=2"], COUNTING) as job:
        job.wait_until(lambda status: applied(status, 0.3) and status["checkpoints"] >= 1)
        job.interrupt()
        job.wait()
        job.assert_promises_held()
        set_field(job.output, "strategy.localSteps.fragments", 2)
        job.resume()
        assert job.wait() != 0
        assert "Set average with quorum and fragments: 3, or begin" in job.printed()


@pytest.mark.parametrize(
    "settings",
    ["adopt=add", "outer={delayedNesterov: {}}", "quorum=2"],
)
def test_a_recorded_run_is_replayed_bit_for_bit(tmp_path: Path, settings: str) -> None:
    with RunningJob(
        tmp_path,
        [f"{_LOCAL}.{settings}", "spec.record=true", "spec.replicas.count=2"],
        PROVING,
    ) as job:
        assert job.wait() == 0

        answer = disttrain("replay", job.output)
    assert answer.code == 0, answer
    assert "bit-identical" in answer.out


def test_too_many_fragments_end_the_job_before_it_trains(tmp_path: Path) -> None:
    settings = [f"{_LOCAL}.steps=32", f"{_LOCAL}.fragments=16"]
    with RunningJob(tmp_path, settings, COUNTING) as job:
        assert job.wait() == 1

        assert job.summary()["samples"] == 0
        assert f"{_LOCAL}.fragments: each has 128 parameters or more" in job.printed()
