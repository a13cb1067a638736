"""Replicas of several ranks: one learner each, whichever of its processes is struck."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from builders import local_steps_jobs, placements
from builders.at_night import others_at_night, strikes
from builders.local_training import LocalTraining, adamw, batches, local_steps
from builders.networks import a_network
from builders.parameter_servers import OneShard
from builders.ranks import RankedTraining, gloo_groups, thread_groups
from builders.runs import RunningJob
from builders.warm_processes import together
from disttrain.replay import recording
from disttrain.replay.recording import NotReplayable
from disttrain.replica.gradient_check import PresentGradients
from disttrain.replica.parts import Part
from disttrain.replica.ranks import Ranks
from disttrain.task.loss import BatchLoss
from oracles import data_parallel
from oracles.data_parallel import RANKS

PROVING = local_steps_jobs.proving(
    "optimizer: {name: AdamW, arguments: {lr: 0.01}}",
    "count: 1",
    audit="full",
    parameterServer={"shards": 3},
)
INNER, INNERS = "spec.replicas.inner", ("ddp", "fsdp2")
COUNTING = local_steps_jobs.counting(
    "steps: 4",
    "{count: 2, ranks: 2, inner: ddp}",
    step_seconds=0.1,
    member_timeout=10,
    checkpoint={},
)
MEMBERS = ("replica-0-0", "replica-0-1")
OTHERS = ("coordinator", "shard-0", "shard-1", "replica-1-0", "replica-1-1")
EPOCHS = 2


def test_the_gradient_is_that_of_torchs_distributed_data_parallel(tmp_path: Path) -> None:
    together(data_parallel.write_gradient, (str(tmp_path),), RANKS)
    wanted = torch.load(tmp_path / "gradient.pt")

    groups, found = thread_groups(RANKS), [torch.empty(0)] * RANKS
    # Made here, since threads share the generator that draws their values.
    models = [data_parallel.model() for _ in range(RANKS)]

    def average(rank: int) -> None:
        model = models[rank]
        loss = data_parallel.loss(model, rank)
        loss.backward()  # type: ignore[no-untyped-call]
        own = [each.grad.flatten() for each in model.parameters() if each.grad is not None]
        found[rank] = torch.cat(own)
        ranks = Ranks(groups[rank], Part(rank, RANKS))
        ranks.average(found[rank], BatchLoss(loss), data_parallel.SAMPLES, PresentGradients(()))

    with ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(average, range(RANKS)))
    for gradient in found:
        torch.testing.assert_close(gradient, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("fragments", [1, 4])
def test_two_groups_over_gloo_equal_two_learners_of_one_rank(
    tmp_path: Path, fragments: int
) -> None:
    """In one order of events: a step of the one, then a step of the other, with every push done."""
    optimizer = {**adamw(weight_decay=0.1), "clipNorm": 0.5}
    manifest = local_steps(steps=4, fragments=fragments, optimizer=optimizer)
    ends = []
    for ranks in (1, RANKS):
        server, of_each = OneShard(0.5), [batches(5), batches(6)]
        learners = [LocalTraining(a_network(), server, manifest) for _ in of_each]
        groups = [
            RankedTraining(a_network, one, manifest, ranks, gloo_groups(tmp_path / name, ranks))
            for name, one in zip("ab", learners, strict=True)
            if ranks > 1
        ]
        for _ in range(40):
            for number, one in enumerate(learners):
                batch = next(of_each[number])
                groups[number].step(batch) if groups else one.step(batch)
                one.connection.pushes.wait_answered()
        for each in groups or learners:
            each.close()
        assert len(server.pushes) == 2 * 40 * fragments // 4
        ends.append(server.values[placements.PARAMETERS].clone())
    assert float((ends[1] - ends[0]).norm() / ends[0].norm()) < 1e-5


def trained(job: RunningJob) -> Tensor:
    values = load_file(job.output / "model.safetensors")
    return torch.cat([values[name].flatten().double() for name in sorted(values)])


@pytest.mark.parametrize("merges", others_at_night([], ["steps=8", "fragments=4", "quorum=1"]))
def test_one_learner_is_the_same_whatever_its_ranks(tmp_path: Path, merges: list[str]) -> None:
    settings = [f"spec.strategy.localSteps.{each}" for each in merges]
    ranks = {
        "alone": [],
        **{inner: ["spec.replicas.ranks=3", f"{INNER}={inner}"] for inner in INNERS},
    }
    ends = {}
    for name, several in ranks.items():
        folder = tmp_path / name
        folder.mkdir()
        with RunningJob(folder, [*several, *settings], PROVING) as job:
            assert job.wait() == 0
            job.assert_promises_held()
            ends[name] = trained(job)
    alone = ends.pop("alone")
    for name, end in ends.items():
        assert float((end - alone).norm() / alone.norm()) < 1e-5, name


def pids(job: RunningJob, names: tuple[str, ...]) -> list[int]:
    return [job.pid(name) for name in names]


def has_begun(status: dict[str, Any]) -> bool:
    return status.get("liveReplicas") == 2 and status["samples"] >= 64


def is_whole_again(status: dict[str, Any]) -> bool:
    now = {one["name"]: (one["incarnation"], one["state"]) for one in status["members"]}
    return all(now.get(name) == (2, "live") for name in MEMBERS)


@pytest.mark.parametrize("inner", INNERS)
@pytest.mark.parametrize(("name", "number"), strikes(MEMBERS))
def test_a_rank_that_dies_takes_its_own_group_along_and_nobody_else(
    tmp_path: Path, name: str, number: int, inner: str
) -> None:
    slow = f"spec.task.arguments={{step_seconds: 1.0, hurry: {tmp_path / 'hurry'}}}"
    with RunningJob(tmp_path, [slow, f"{INNER}={inner}"], COUNTING) as job:
        job.wait_until(has_begun)
        others, before = pids(job, OTHERS), pids(job, MEMBERS)
        job.signal(name, number)
        job.wait_until(is_whole_again)
        (tmp_path / "hurry").touch()
        assert job.wait() == 0

        assert pids(job, OTHERS) == others
        assert not set(pids(job, MEMBERS)) & set(before)
        summary = job.summary()
        assert summary["restarts"] == {"coordinator": 0, "shard": 0, "replica": 1}
        # Of a loss that is a sum, ranks make the mean of their halves, and shards that of replicas.
        counts = load_file(job.output / "model.safetensors")["counts"]
        assert float(counts.min()) >= EPOCHS / 4
        job.assert_promises_held()


def test_a_record_of_ranks_is_not_replayed(tmp_path: Path) -> None:
    settings = ["spec.replicas.ranks=2", "spec.record=true", "spec.stop.epochs=1"]
    with RunningJob(tmp_path, settings, PROVING) as job:
        assert job.wait() == 0
        with pytest.raises(NotReplayable, match="2 ranks, whose gradients"):
            recording.read(job.output)
