"""Weight decay and parameters without a gradient, beside torch.optim on the same batches."""

import copy
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Optimizer

from builders import placements
from builders.downpours import a_downpour
from builders.parameter_servers import OneShard
from disttrain.coordinator.protocol.fields import Position
from disttrain.job.strategies import downpour
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.connection import Connection, Sides
from disttrain.replica.downpour import Downpour
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.pace import NeverWaits
from disttrain.task.loss import BatchLoss
from disttrain.transport.memory import OrdinaryMemory

RATE, DECAY = 0.1, 0.1


class TwoHeads(nn.Module):
    """Of which a batch needs one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.body = nn.Linear(4, 6)
        self.heads = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)])

    def loss(self, values: Tensor, labels: Tensor, head: int) -> Tensor:
        return functional.cross_entropy(self.heads[head](self.body(values).tanh()), labels)


def batches(count: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        values = torch.randn(8, 4, generator=generator)
        yield values, torch.randint(0, 3, (8,), generator=generator)


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def first(_step: int) -> int:
    return 0


def in_turn(step: int) -> int:
    return step % 2


def ours(
    model: TwoHeads, config: downpour.Downpour, steps: int, head: Callable[[int], int] = first
) -> Tensor:
    """What the shards have after the steps. No fetch arrives before, unless it is waited for."""
    server = OneShard(RATE)
    memory = OrdinaryMemory()
    joined = FlatModel(model, memory, torch.device("cpu"), outgoing_buffers=3)
    connection = Connection(joined, Sides(push=server, fetch=server), Cancellation())
    connection.upload([0])
    loop = Downpour(connection, config, pace=NeverWaits())
    loop.begin(connection.first_fetch(meanwhile=lambda: None))
    if config.max_in_flight > 0:
        server.fetch_gate.clear()
    for step, (values, labels) in enumerate(batches(steps)):
        gradient = loop.begin_step()
        loss = model.loss(values, labels, head(step))
        loss.backward()  # type: ignore[no-untyped-call]
        position = Position(lease=1, offset=8 * step + 8)
        scale = loop.accrue(gradient, BatchLoss(loss), 8, position)
        loop.push()
        loop.adopt(gradient, scale, 8)
    loop.flush()
    server.fetch_gate.set()
    connection.close()
    return server.values[placements.PARAMETERS]


def plainly(
    model: TwoHeads,
    optimizer: Callable[..., Optimizer],
    steps: int,
    head: Callable[[int], int] = first,
    clip: float | None = None,
) -> Tensor:
    torch_optimizer = optimizer(model.parameters())
    for step, (values, labels) in enumerate(batches(steps)):
        torch_optimizer.zero_grad()
        model.loss(values, labels, head(step)).backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        torch_optimizer.step()
    return flat(model)


@pytest.mark.parametrize("head", [first, in_turn])
def test_decay_has_the_bits_of_torch_where_there_is_a_gradient_and_no_effect_elsewhere(
    head: Callable[[int], int],
) -> None:
    model = TwoHeads()
    plain = copy.deepcopy(model)
    config = a_downpour(waits_for_answers=True, weight_decay=DECAY)

    found = ours(model, config, 50, head)

    assert torch.equal(found, plainly(plain, partial(SGD, lr=RATE, weight_decay=DECAY), 50, head))


@pytest.mark.parametrize("push_every", [1, 4, 10])
@pytest.mark.parametrize("clip", [None, 0.2])
def test_a_push_of_several_local_steps_decays_like_as_many_steps_of_torch(
    push_every: int, clip: float | None
) -> None:
    model = TwoHeads()
    plain = copy.deepcopy(model)
    config = a_downpour(
        push_every=push_every,
        fetch_every=1000,
        local_learning_rate=RATE,
        weight_decay=DECAY,
        clip_norm=clip,
    )

    found = ours(model, config, 40)

    wanted = plainly(plain, partial(SGD, lr=RATE, weight_decay=DECAY), 40, clip=clip)
    assert torch.allclose(found, wanted, atol=1e-5)
    assert torch.allclose(flat(model), wanted, atol=1e-5)


@pytest.mark.parametrize("push_every", [4, 10])
def test_a_push_of_several_steps_on_the_same_parameters_decays_for_each_of_them(
    push_every: int,
) -> None:
    model = TwoHeads()
    nothing = copy.deepcopy(model)
    before = flat(model)
    steps = 2 * push_every + 1
    config = a_downpour(push_every=push_every, fetch_every=1000, weight_decay=1e-3)

    decayed = ours(model, config, steps)
    plain = ours(nothing, a_downpour(push_every=push_every, fetch_every=1000), steps)

    used = slice(0, 30 + 21)  # The body and the first head; the second has no gradient.
    lost = (plain - decayed)[used]
    assert torch.allclose(lost, RATE * 1e-3 * steps * before[used], atol=1e-7)
    assert torch.equal(decayed[51:], before[51:])
