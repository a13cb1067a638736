"""Local steps without a quorum, in one process: a run's own events, one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import disttrain
from disttrain import Batch

_BLOCK = 128
"""Elements of int8 that have a scale, which stands before them as float32."""
Run = tuple[int, int]
"""First element and end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """What the run's manifest says."""

    replicas: int
    rate: float = 1.0
    momentum: float | None = None
    """None: `average`."""
    is_delayed: bool = False
    rounds_fetches: bool = False
    """To bfloat16."""
    full_age: int | None = None
    inner_rate: float = 0.05


@dataclass
class Shard:
    """Of a range of the parameters; double precision."""

    values: Tensor
    count: int = 0
    """Pushes that are in the values."""
    velocity: Any = 0.0
    waiting: Any = 0.0

    def push(self, difference: Tensor, age: int, rules: Rules) -> None:
        whole = 1.0 if rules.full_age is None else min(1.0, rules.full_age / max(1, age))
        step = difference.double() * whole / rules.replicas
        self.count += 1
        if rules.momentum is not None and not rules.is_delayed:
            self.velocity = rules.momentum * self.velocity + step
            step = step + rules.momentum * self.velocity
        self.values = self.values - rules.rate * step
        self.waiting = self.waiting + step
        if rules.momentum is not None and rules.is_delayed and self.count % rules.replicas == 0:
            self.velocity, self.waiting = rules.momentum * self.velocity + self.waiting, 0.0
            self.values = self.values - rules.rate * rules.momentum * self.velocity


class Replica:
    """Torch alone: a model, SGD, and the parameters that the next push is the difference to."""

    def __init__(self, task: disttrain.Task, initial: Tensor, shards: int, rules: Rules) -> None:
        self.model, self._task = task.model(), task
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rules.inner_rate)
        self.fetched, self.fetched_at = initial.clone(), [0] * shards
        self.anchor, self.anchored_at = initial.clone(), [0] * shards
        self.rest, self.sent = torch.zeros_like(initial), torch.zeros_like(initial)
        self._rounds_fetches = rules.rounds_fetches
        vector_to_parameters(initial.clone(), self.model.parameters())

    @property
    def own(self) -> Tensor:
        return parameters_to_vector(self.model.parameters()).detach()

    def step(self, batch: Batch, seed: int) -> None:
        torch.manual_seed(seed)
        self.optimizer.zero_grad()
        self._task.loss(self.model, batch).backward()  # type: ignore[union-attr]
        self.optimizer.step()

    def push(self, sent: Tensor) -> None:
        """Of what goes on the wire only the rounding is taken from there, and looked at."""
        wanted = self.anchor - self.own + self.rest
        self.anchor, self.sent = self.own.clone(), wanted
        if sent.dtype is torch.float32:
            return
        # Half a unit: of 127 to the largest element of a block, or of bfloat16's eight bits.
        half = wanted.abs() / 256
        if sent.dtype is torch.uint8:
            blocks = torch.split(wanted.abs(), _BLOCK)
            half = torch.cat([each.max().expand(len(each)) for each in blocks]) / 254
            sent = _widened(sent, len(wanted))
        assert ((sent.float() - wanted).abs() <= 1.001 * half + 3e-7).all()
        self.sent, self.rest = sent.float(), wanted - sent.float()

    def adopt(self, found: Tensor) -> None:
        """Its own steps since the push are added to what was fetched.

        Of what the run found only the rounding is taken, and looked at.
        """
        if self._rounds_fetches:
            assert torch.equal(found, found.bfloat16().float())
            assert ((found - self.fetched).abs() <= 1.001 * self.fetched.abs() / 256 + 3e-7).all()
            self.fetched = found
        own = self.own + self.fetched - self.anchor
        vector_to_parameters(own, self.model.parameters())
        self.anchor, self.anchored_at = self.fetched.clone(), list(self.fetched_at)


def _widened(sent: Tensor, elements: int) -> Tensor:
    blocks = sent.view(-1, 4 + _BLOCK)
    scales = blocks[:, :4].contiguous().view(torch.float32)
    return (blocks[:, 4:].contiguous().view(torch.int8) * scales).flatten()[:elements]


@dataclass
class Serial:
    """`ranges`: what each shard has of the parameters."""

    task: disttrain.Task
    rules: Rules
    initial: Tensor
    ranges: Sequence[Run]
    shards: list[Shard] = field(init=False)
    replicas: list[Replica] = field(init=False)

    def __post_init__(self) -> None:
        self.shards = [Shard(self.initial[slice(*run)].double()) for run in self.ranges]
        count, rules = len(self.ranges), self.rules
        self.replicas = [
            Replica(self.task, self.initial, count, rules) for _ in range(rules.replicas)
        ]

    def arrives(self, sender: int, shard: int) -> None:
        """A push is applied."""
        of, one = self.replicas[sender], self.shards[shard]
        sent = of.sent[slice(*self.ranges[shard])]
        one.push(sent, one.count - of.anchored_at[shard], self.rules)

    def gives(self, sender: int, shard: int) -> None:
        """A fetch is served."""
        of, one = self.replicas[sender], self.shards[shard]
        of.fetched[slice(*self.ranges[shard])] = one.values.float()
        of.fetched_at[shard] = one.count

    @property
    def parameters(self) -> Tensor:
        return torch.cat([each.values for each in self.shards])
