"""Models that ranks divide by FSDP2 in processes of their own, and what one process computes.

Each rank writes what it finds into a folder, as `RANK-CASE.safetensors`.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset, TensorDataset

from disttrain import Loss, Split, Task
from disttrain.groups import gloo, steps
from disttrain.groups.errors import GroupLost
from disttrain.groups.gloo import GlooGroup
from disttrain.groups.meeting import FolderMeeting
from disttrain.groups.steps import Leader
from disttrain.job.spec import FrozenParameters
from disttrain.job.strategy_kind import Precision
from disttrain.replica import evaluation
from disttrain.replica.evaluation import Computing, Sums
from disttrain.replica.parts import Part
from disttrain.replica.pieces import Sharding
from disttrain.replica.sharded_model import FollowingShard, ShardedModel, ShardedRank
from disttrain.replica.task_calls import TaskCalls
from disttrain.task import checks
from disttrain.task.errors import UserCodeError
from disttrain.task.loss import BatchLoss, LossContext

RANKS = 3
CPU = torch.device("cpu")
FEATURES, CLASSES = 6, 5
NOTHING_COUNTS = -1
"""A label."""


class Tied(nn.Module):
    """Blocks in a list, between an embedding and a head that are one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(FEATURES, CLASSES)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(CLASSES, 7), nn.Tanh(), nn.Linear(7, CLASSES)) for _ in range(2)
        )
        self.mix = nn.Linear(CLASSES, CLASSES, bias=False)
        self.head = nn.Linear(CLASSES, CLASSES)
        self.head.weight = self.mix.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.mix(self.enter(x))
        for block in self.blocks:
            x = x + block(x)
        found: Tensor = self.head(x)
        return found


def normalised() -> nn.Module:
    """With running statistics, a bias of one row, and more ranks than rows in places."""
    return nn.Sequential(
        nn.Linear(FEATURES, 1),
        nn.Linear(1, 4),
        nn.BatchNorm1d(4),
        nn.Sequential(nn.ReLU(), nn.Linear(4, 2), nn.Tanh()),
        nn.Linear(2, CLASSES),
    )


class Remembering(nn.Module):
    """Parameters beside a list, running statistics, and a buffer that training computes with."""

    level: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(FEATURES, 4)
        self.norm = nn.BatchNorm1d(4)
        self.blocks = nn.ModuleList([nn.Sequential(nn.ReLU(), nn.Linear(4, 4), nn.Tanh())])
        self.blocks[0].register_buffer("scale", torch.full((1,), 0.5))
        # One tensor under two names, which nothing but the model's own state has.
        scale = self.blocks[0].get_buffer("scale")
        self.register_buffer("same_scale", scale, persistent=False)
        self.leave = nn.Linear(4, CLASSES)
        self.register_buffer("level", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.enter(x))
        if self.training:
            self.level.mul_(0.5).add_(x.detach().square().mean())
        for block in self.blocks:
            x = x + block(x) * self.level * self.same_scale
        found: Tensor = self.leave(x)
        return found


class Recomputed(Tied):
    """Blocks that compute once more in backward, to keep less for it."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.mix(self.enter(x))
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        found: Tensor = self.head(x)
        return found


class Adapted(nn.Module):
    """A frozen layer in bfloat16, and beside it a trained one of low rank.

    What it is given has no gradient: in bfloat16 that would depend on the number of ranks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(FEATURES, CLASSES).bfloat16().requires_grad_(False)  # noqa: FBT003
        self.down, self.up = (
            nn.Linear(*sizes, bias=False) for sizes in ((FEATURES, 2), (2, CLASSES))
        )

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base(x.bfloat16()).to(x.dtype) + self.up(self.down(x))
        return found


def adapted() -> nn.Module:
    return nn.Sequential(Adapted(), nn.Tanh(), nn.Linear(CLASSES, CLASSES))


def partly_frozen() -> nn.Module:
    model = Tied()
    for parameter in (*model.blocks[0].parameters(), model.enter.bias):
        parameter.requires_grad = False
    return model


class Case(NamedTuple):
    """A model, and how many samples its batch has."""

    make: Callable[[], nn.Module]
    samples: int
    counts: bool = False
    """Its loss is a sum over what counts."""


CASES = {
    "tied": Case(Tied, 8),
    "normalised": Case(normalised, 13),
    "remembering": Case(Remembering, 11),
    "partly-frozen": Case(partly_frozen, 8),
    "recomputed": Case(Recomputed, 8),
    "adapted": Case(adapted, 8),
    "counting": Case(Tied, 10, counts=True),
    "fewer-samples-than-ranks": Case(Tied, 2),
    "fewer-that-count": Case(Tied, 1, counts=True),
}
STEPS = 2
TESTS, TEST_BATCH = 11, 4


def model(case: Case) -> nn.Module:
    torch.manual_seed(11)
    made = case.make()
    for each in (*made.parameters(), *made.buffers()):
        each.data = each.data.double() if each.dtype == torch.float32 else each.data
    return made


def batch(case: Case, step: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(12 + step)
    labels = torch.randint(CLASSES, (case.samples,), generator=draw)
    if case.counts:
        labels[case.samples // 2 + 1 :: 2] = NOTHING_COUNTS
    return torch.randn(case.samples, FEATURES, generator=draw).double(), labels


def loss(of: nn.Module, case: Case, step: int, first: int, end: int) -> BatchLoss:
    """Of some of a batch's samples."""
    values, labels = (each[first:end] for each in batch(case, step))
    found = of(values)
    if not case.counts:
        return checks.check_loss(functional.cross_entropy(found, labels))
    total = functional.cross_entropy(found, labels, ignore_index=NOTHING_COUNTS, reduction="sum")
    return checks.check_loss(Loss(sum=total, count=(labels != NOTHING_COUNTS).sum()))


def write_steps(rank: int, folder: str) -> None:
    """One process, of `RANKS`. What it writes are gradients of its rows, losses and buffers."""
    torch.set_num_threads(1)
    meeting = FolderMeeting(Path(folder), time.sleep)
    group = gloo.form(meeting, rank, RANKS, "127.0.0.1", lambda: None)
    for name, case in CASES.items():
        save_file(_steps(group, case), Path(folder) / f"{rank}-{name}.safetensors")
    _evaluate(group, Path(folder))
    # A process group that is destroyed waits for its members.
    os._exit(0)


def _steps(group: GlooGroup, case: Case) -> dict[str, Tensor]:
    made = ShardedRank(Sharding(model(case), RANKS, CPU), group)
    found: dict[str, Tensor] = {}
    for step in range(STEPS):
        made.samples = case.samples
        first, end = made.part.bounds(case.samples)

        def alone(numbers: tuple[int, int], _: LossContext, step: int = step) -> BatchLoss:
            return loss(made.model, case, step, *numbers)

        whole = made.loss(alone, (first, end), LossContext())
        whole.mean.backward()  # type: ignore[no-untyped-call]
        made.keep()
        found[f"loss {step}"] = whole.mean.detach().clone()
        for each, gradient in made.gradients().items():
            if gradient is not None:
                found[f"gradient {step} {each}"] = gradient.clone()
    for each, buffer in made.pieces.named_buffers():
        found[f"buffer {each}"] = buffer.clone()
    return found


class Measured(Task):
    """A model with running statistics, and tests that can fail."""

    def __init__(self) -> None:
        self.fails = False

    def model(self) -> nn.Module:
        return Remembering()

    def dataset(self, split: Split) -> Dataset[Any]:
        draw = torch.Generator().manual_seed(20 if split is Split.TRAIN else 21)
        labels = torch.randint(CLASSES, (TESTS,), generator=draw)
        return TensorDataset(torch.randn(TESTS, FEATURES, generator=draw), labels)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return functional.cross_entropy(model(batch[0]), batch[1])

    def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        found = model(batch[0])
        if self.fails:
            # Within the model, whose width is another one.
            model(batch[0][:, :2])
        return {"accuracy": (found.argmax(1) == batch[1]).sum()}


def trained(seed: int) -> nn.Module:
    """With running statistics that are none of a new model."""
    torch.manual_seed(seed)
    found = Remembering()
    found(3 * torch.randn(20, FEATURES) + 1)
    return found


def measured(calls: TaskCalls, of: nn.Module, computing: Computing = evaluation.alone) -> Sums:
    examples = calls.examples(Split.TEST, 1)
    return evaluation.evaluate(calls, of, examples, TEST_BATCH, lambda batch: batch, computing)


def _evaluate(group: GlooGroup, folder: Path) -> None:
    """The first rank writes what it has measured, and all of a model that none has alone."""
    task = Measured()
    calls, sharding = TaskCalls(task), Sharding(trained(1), RANKS, CPU)
    layout = sharding.layout(Precision.FLOAT32, {}, FrozenParameters.SHARED)
    if group.peers.rank:
        following = FollowingShard(sharding, group, layout)

        def step(words: Sequence[int]) -> None:
            task.fails = (folder / "fails").exists()
            following.step(calls, words)

        assert steps.follow(group, step) == 0
        return
    leader = Leader(group)
    made = ShardedModel(sharding, leader, layout)
    computing = made.evaluating(made.model, Split.TEST)
    found = {"own": asdict(measured(calls, made.model, computing))}
    (folder / "fails").touch()
    task.fails = True
    try:
        measured(calls, made.model, computing)
    except UserCodeError as error:
        found["said"] = {"error": str(error)}
    (folder / "fails").unlink()
    task.fails = False
    save_file(trained(2).state_dict(), folder / "other.safetensors")
    with made.loaded(str(folder / "other.safetensors")) as other:
        found["loaded"] = asdict(measured(calls, other, computing))
        names = [name for name, _ in other.named_parameters()]
        gathered = {name: made.tensor(other, name) for name in names}
    save_file(gathered, folder / "of-loaded.safetensors")
    found["after"] = asdict(measured(calls, made.model, computing))
    (folder / "measured.json").write_text(json.dumps(found))
    leader.end(0)


class FailsInOne(Measured):
    """One rank alone cannot read a batch, or compute it within the model."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def collate(self, samples: list[Any]) -> Any:
        if self.where == "reading":
            message = "it is not there"
            raise OSError(message)
        return super().collate(samples)

    def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        self.fails = self.where == "computing"
        return super().measure(model, batch)


FAILURES = ("reading", "computing")


def write_ends(rank: int, folder: str) -> None:
    """One process, of `RANKS`, of which one fails alone; it writes how each of them ends."""
    torch.set_num_threads(1)
    ends = {}
    for where in FAILURES:
        meetings = Path(folder) / where
        meetings.mkdir(exist_ok=True)
        group = gloo.form(
            FolderMeeting(meetings, time.sleep), rank, RANKS, "127.0.0.1", lambda: None
        )
        calls = TaskCalls(FailsInOne(where) if rank == 1 else Measured())
        began = time.monotonic()
        try:
            _take_part(group, calls)
        except GroupLost:
            ends[where] = time.monotonic() - began
    (Path(folder) / f"{rank}.json").write_text(json.dumps(ends))
    os._exit(0)


def _take_part(group: GlooGroup, calls: TaskCalls) -> None:
    sharding = Sharding(trained(1), RANKS, CPU)
    layout = sharding.layout(Precision.FLOAT32, {}, FrozenParameters.SHARED)
    if group.peers.rank:
        following = FollowingShard(sharding, group, layout)
        steps.follow(group, partial(following.step, calls))
        return
    made = ShardedModel(sharding, Leader(group), layout)
    measured(calls, made.model, made.evaluating(made.model, Split.TEST))


def alone(case: Case) -> dict[str, Tensor]:
    """The same of one process: each part of a batch after the other, with the first one's buffers.

    Gradients are whole.
    """
    of, found = model(case), dict[str, Tensor]()
    for step in range(STEPS):
        before = {name: each.clone() for name, each in of.named_buffers()}
        total = count = 0.0
        gradients: dict[str, Tensor] = {}
        for rank in reversed(range(RANKS)):
            part = Part(rank, RANKS)
            first, end = part.bounds(case.samples)
            for name, each in of.named_buffers():
                each.copy_(before[name])
            if first == end:
                continue
            of.zero_grad()
            own = loss(of, case, step, first, end)
            counted = float(end - first if own.count is None else own.count)
            (own.mean * counted).backward()  # type: ignore[no-untyped-call]
            total, count = total + own.mean.item() * counted, count + counted
            for name, parameter in of.named_parameters():
                if parameter.grad is not None:
                    gradients[name] = gradients.get(name, 0.0) + parameter.grad
        found[f"loss {step}"] = torch.tensor(total / count, dtype=torch.float64)
        found |= {f"gradient {step} {name}": each / count for name, each in gradients.items()}
    found |= {f"buffer {name}": each for name, each in of.named_buffers()}
    return found
