"""Losses that are no means over samples, beside what autograd makes of all batches together."""

import copy
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from builders import placements
from builders.downpours import a_downpour
from builders.parameter_servers import OneShard
from disttrain.coordinator.protocol.fields import Position
from disttrain.parameter_server.messages import MOST_PUSHES_TOLD
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.connection import Connection, Sides
from disttrain.replica.downpour import Downpour
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.pace import NeverWaits
from disttrain.task import checks
from disttrain.task.loss import Loss
from disttrain.transport.memory import OrdinaryMemory

LossOfModel = Callable[[nn.Module, tuple[Tensor, Tensor]], Loss]

PADDING = -1
NOTHING = [0, 0, 0]
LENGTHS = (
    *([5, 1, 2], [7, 7, 6], NOTHING, [1, 0, 0], [3, 4, 4], [7, 1, 1], [2, 2, 0], [6, 1, 3]),
    *(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, [4, 4, 1], [2, 0, 0], [1, 1, 1]),
)
"""Tokens of the samples of each batch."""


def a_batch(number: int, lengths: Sequence[list[int]] = LENGTHS) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    values = torch.randn(3, 7, 4, generator=generator)
    labels = torch.randint(0, 5, (3, 7), generator=generator)
    for row, length in enumerate(lengths[number]):
        labels[row, length:] = PADDING
    return values, labels


def tokens(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
    values, labels = batch
    total = functional.cross_entropy(
        model(values).flatten(0, 1), labels.flatten(), ignore_index=PADDING, reduction="sum"
    )
    return Loss(sum=total, count=(labels != PADDING).sum())


def weighted(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
    """As class weights make it, with a sum of weights below 1."""
    weights = torch.tensor([0.5, 0.01, 0.02, 0.3, 0.1])
    values, labels = batch[0][:, 0], batch[1][:, 0].clamp(min=0)
    mean = functional.cross_entropy(model(values), labels, weight=weights)
    return Loss.mean(mean, weights[labels].sum())


def a_model() -> nn.Module:
    torch.manual_seed(6)
    return nn.Linear(4, 5)


def pushes_of(push_every: int) -> list[range]:
    """The steps of each push: the first one holds one."""
    firsts = range(1, len(LENGTHS), push_every)
    later = [range(first, min(first + push_every, len(LENGTHS))) for first in firsts]
    return [range(1), *later]


def trained(
    model: nn.Module,
    server: OneShard,
    push_every: int,
    loss: LossOfModel,
    lengths: Sequence[list[int]],
) -> Tensor:
    """A step for each batch; the parameters before them. Nothing is fetched."""
    flat = FlatModel(model, OrdinaryMemory(), torch.device("cpu"), outgoing_buffers=3)
    connection = Connection(flat, Sides(push=server, fetch=server), Cancellation())
    connection.upload([0])
    config = a_downpour(push_every=push_every, fetch_every=1000)
    downpour = Downpour(connection, config, pace=NeverWaits())
    downpour.begin(connection.first_fetch(meanwhile=lambda: None))
    server.fetch_gate.clear()
    before = server.values[placements.PARAMETERS].clone()
    for step in range(len(lengths)):
        gradient = downpour.begin_step()
        value = checks.check_loss(loss(model, a_batch(step, lengths)))
        value.mean.backward()  # type: ignore[no-untyped-call]
        position = Position(lease=1, offset=3 * step + 3)
        scale = downpour.accrue(gradient, value, 3, position)
        downpour.push()
        downpour.adopt(gradient, scale, 3)
    downpour.flush()
    server.fetch_gate.set()
    connection.close()
    return before


@pytest.mark.parametrize("push_every", [1, 2])
def test_pushes_after_many_that_held_nothing_tell_no_more_samples_than_shards_take(
    push_every: int,
) -> None:
    server = OneShard(1.0)
    lengths = [[5, 1, 2], *[NOTHING] * 60, *[[1, 2, 3]] * 20]
    trained(a_model(), server, push_every, tokens, lengths)

    told = [push.samples for push in server.pushes]
    assert max(told) <= MOST_PUSHES_TOLD * push_every * 3
    # In the end they have told all.
    assert sum(told) == 3 * len(lengths)


@pytest.mark.parametrize("loss", [tokens, weighted])
@pytest.mark.parametrize("push_every", [1, 3, 4])
def test_a_push_is_the_gradient_over_its_batches_together_times_the_steps_that_count(
    push_every: int,
    loss: LossOfModel,
) -> None:
    model, server = a_model(), OneShard(1.0)
    plain = copy.deepcopy(model)
    before = trained(model, server, push_every, loss, LENGTHS)
    for steps in pushes_of(push_every):
        losses = [loss(plain, a_batch(step)) for step in steps]
        total = torch.stack([one.sum for one in losses]).sum()
        counts = [float(one.count) for one in losses]
        share = sum(count > 0 for count in counts) / max(sum(counts), 1e-30)
        (total * share).backward()  # type: ignore[no-untyped-call]
    wanted = torch.cat([one.grad.flatten() for one in plain.parameters() if one.grad is not None])
    moved = before - server.values[placements.PARAMETERS]
    assert torch.allclose(moved, wanted, atol=1e-6)
    assert sum(push.samples for push in server.pushes) == 3 * len(LENGTHS)
