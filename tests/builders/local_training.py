"""A replica of local steps on a parameter server inside the test."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from builders.parameter_servers import OneShard
from disttrain.coordinator.protocol.fields import Position
from disttrain.job.strategies.local_steps import LocalSteps
from disttrain.replica.agreement import ALONE, Agreement
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.connection import Connection, Sides
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.ledger import SILENT, Ledger
from disttrain.replica.local_steps import LocalStepper
from disttrain.state.factors import Factors
from disttrain.task.loss import BatchLoss
from disttrain.transport.memory import OrdinaryMemory

SAMPLES = 8
"""Of a batch."""

Batch = tuple[Tensor, Tensor]


def batches(seed: int, channels: tuple[int, ...] = (1, 8, 8), classes: int = 7) -> Iterator[Batch]:
    draw = torch.Generator().manual_seed(seed)
    while True:
        yield (
            torch.randn(SAMPLES, *channels, generator=draw),
            torch.randint(classes, (SAMPLES,), generator=draw),
        )


def local_steps(**settings: Any) -> LocalSteps:
    """Which wait for what they fetch, where a test says nothing else."""
    return LocalSteps.model_validate({"adopt": "replace", **settings})


def adamw(**arguments: float) -> dict[str, Any]:
    return {"name": "AdamW", "arguments": {"lr": 0.01, **arguments}}


class LocalTraining:
    """One replica; the first one of a server uploads its model's values."""

    def __init__(
        self,
        model: nn.Module,
        server: OneShard,
        manifest: LocalSteps,
        *,
        ledger: Ledger = SILENT,
        factors: tuple[Factors, ...] = (),
        device: str = "cpu",
        meanwhile: Callable[[LocalStepper], None] = lambda _: None,
        agreement: Agreement = ALONE,
    ) -> None:
        """`meanwhile` is called until the first fetch is there."""
        self.model = model
        self.device = torch.device(device)
        self.flat = FlatModel(
            model,
            OrdinaryMemory(),
            self.device,
            outgoing_buffers=1,
            formats=manifest.formats,
            factors=factors,
        )
        sides = Sides(push=server, fetch=server, agreement=agreement)
        self.connection = Connection(self.flat, sides, Cancellation(), ledger)
        if not server.values:
            self.connection.upload([0])
        self.stepper = LocalStepper(self.connection, manifest)
        self.stepper.begin(self.connection.first_fetch(partial(meanwhile, self.stepper)))

    def step(self, batch: Batch, spoil: Callable[[Tensor], Tensor] = lambda loss: loss) -> None:
        stepper = self.stepper
        gradient = stepper.begin_step()
        loss = self.loss(batch)
        spoil(loss.mean).backward()  # type: ignore[no-untyped-call]
        position = Position(lease=1, offset=(stepper.counters.steps + 1) * SAMPLES)
        scale = stepper.accrue(gradient, loss, SAMPLES, position)
        stepper.push()
        stepper.adopt(gradient, scale, SAMPLES)

    def loss(self, batch: Batch) -> BatchLoss:
        values, labels = (each.to(self.device) for each in batch)
        return BatchLoss(functional.cross_entropy(self.model(values), labels))

    @property
    def parameters(self) -> Tensor:
        return self.flat.parameters.detach().clone()

    def close(self) -> None:
        self.connection.close()


def plain_steps(
    model: nn.Module, optimizer: torch.optim.Optimizer, given: Iterator[Batch], count: int
) -> None:
    for _, batch in zip(range(count), given, strict=False):
        optimizer.zero_grad()
        functional.cross_entropy(model(batch[0]), batch[1]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
