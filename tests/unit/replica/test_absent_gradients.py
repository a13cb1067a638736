"""Parameters that a step needs not: rules with a memory leave them alone, as torch.optim does."""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from builders import downpour_shards
from builders.parameter_servers import OneShard
from builders.replicas import replica
from builders.shard_thread import ShardThread
from disttrain.coordinator.protocol.fields import Position
from disttrain.job.strategies.downpour import Downpour as Manifest
from disttrain.parameter_server import presence
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.shard import Shard
from disttrain.replica import accrual, model_tensors
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.connection import Connection, Sides
from disttrain.replica.downpour import Downpour
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.pace import NeverWaits
from disttrain.state.placement import Range, place
from disttrain.task.loss import BatchLoss
from disttrain.transport.config import TransportKind
from disttrain.transport.interface import Transport
from disttrain.transport.memory import OrdinaryMemory

STEPS, RATE = 61, 0.01

CASES: dict[str, tuple[str, Callable[..., Optimizer]]] = {
    "momentum": ("momentum", partial(SGD, momentum=0.9)),
    "adam": ("adam", Adam),
    "adamw": ("adamw", AdamW),
    "rmsprop": ("rmsprop", RMSprop),
}


class TwoHeads(nn.Module):
    """Of which a batch needs one, and a module that no batch needs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.body = nn.Linear(4, 6)
        self.heads = nn.ModuleList([nn.Linear(6, 3) for _ in range(2)])
        self.idle = nn.Linear(6, 3)

    def loss(self, step: int, head: int) -> Tensor:
        generator = torch.Generator().manual_seed(step)
        values = torch.randn(8, 4, generator=generator)
        labels = torch.randint(0, 3, (8,), generator=generator)
        return functional.cross_entropy(self.heads[head](self.body(values).tanh()), labels)


def in_turn(step: int) -> int:
    return step % 2


def late(step: int) -> int:
    return int(step >= 20)


def two_by_two(step: int) -> int:
    return step // 2 % 2


def ours(folder: Path, model: TwoHeads, manifest: Manifest, head: Callable[[int], int]) -> Tensor:
    """The parameters after steps of one replica that waits for each answer."""
    rule = manifest.optimizer.rule
    placement = place(model_tensors.describe(model).layout, 1, rule.kept)

    def a_shard(transport: Transport) -> Shard:
        shard = downpour_shards.build(ShardState(index=0, incarnation=1), rule)
        shard.configure(placement, transport.chunk_bytes)
        shard.admit(SenderIncarnation(0, 1))
        return shard

    kind = TransportKind.SHARED_MEMORY
    with ShardThread(kind, folder, a_shard) as shard, replica(kind, [shard]) as one:
        buffers = accrual.gradient_buffers(manifest)
        flat = FlatModel(
            model,
            one.memory,
            torch.device("cpu"),
            outgoing_buffers=buffers,
            formats=manifest.formats,
        )
        sides = Sides(push=one.pushes, fetch=one.fetches)
        connection = Connection(flat, sides, Cancellation())
        connection.upload([0])
        loop = Downpour(connection, manifest, pace=NeverWaits())
        loop.begin(connection.first_fetch(meanwhile=lambda: None))
        for step in range(STEPS):
            gradient = loop.begin_step()
            loss = model.loss(step, head(step))
            loss.backward()  # type: ignore[no-untyped-call]
            position = Position(lease=1, offset=8 * step + 8)
            scale = loop.accrue(gradient, BatchLoss(loss), 8, position)
            loop.push()
            loop.adopt(gradient, scale, 8)
        loop.flush()
        loop.fetch_now()
        found = flat.parameters.clone()
        connection.close()
    return found


def plainly(
    model: TwoHeads,
    make: Callable[..., Optimizer],
    head: Callable[[int], int],
    accumulate: int = 1,
    clip: float | None = None,
    *,
    is_rounded: bool = False,
) -> Tensor:
    optimizer = make(model.parameters(), lr=RATE)
    for step in range(STEPS):
        before = [p.grad for p in model.parameters()]
        for parameter in model.parameters():
            parameter.grad = None
        model.loss(step, head(step)).backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        for parameter, sum_before in zip(model.parameters(), before, strict=True):
            if is_rounded and parameter.grad is not None:
                parameter.grad = parameter.grad.bfloat16().float()
            if sum_before is not None:
                now = parameter.grad
                parameter.grad = sum_before if now is None else sum_before + now
        # As in Algorithm 1.1, the first step is a push of its own.
        if step % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("head", "push_every", "clip"), [(in_turn, 1, 0.5), (late, 1, None), (two_by_two, 2, 0.5)]
)
def test_parameters_without_a_gradient_are_those_of_torch(
    tmp_path: Path, name: str, head: Callable[[int], int], push_every: int, clip: float | None
) -> None:
    rule, make = CASES[name]
    model = TwoHeads()
    plain, before = copy.deepcopy(model), model.idle.weight.detach().clone()
    settings = {"learning_rate": RATE, "clip_norm": clip}
    manifest = Manifest.model_validate(
        {
            "max_in_flight": 0,
            "push_every": push_every,
            "local_learning_rate": 0.0,
            "optimizer": {rule: settings},
        }
    )

    found = ours(tmp_path, model, manifest, head)

    wanted = plainly(plain, make, head, push_every, clip)
    assert (found - wanted).norm() / wanted.norm() < 1e-6
    assert torch.equal(model.idle.weight, before)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("head", [in_turn, late])
def test_they_are_so_when_gradients_travel_in_half_of_the_bits(
    tmp_path: Path, name: str, head: Callable[[int], int]
) -> None:
    rule, make = CASES[name]
    model = TwoHeads()
    plain, before = copy.deepcopy(model), model.idle.weight.detach().clone()
    optimizer = {rule: {"learning_rate": RATE}}
    manifest = Manifest.model_validate(
        {"max_in_flight": 0, "push_as": "bfloat16", "optimizer": optimizer}
    )

    found = ours(tmp_path, model, manifest, head)

    wanted = plainly(plain, make, head, is_rounded=True)
    assert (found - wanted).norm() / wanted.norm() < 1e-6
    assert torch.equal(model.idle.weight, before)


def test_a_gradient_that_clipping_makes_0_is_no_mark() -> None:
    model = TwoHeads()
    settings = {"learning_rate": RATE, "clip_norm": 1e-3}
    manifest = Manifest.model_validate({"push_every": 2, "optimizer": {"adam": settings}})
    server = OneShard(RATE)
    flat = FlatModel(model, OrdinaryMemory(), torch.device("cpu"), outgoing_buffers=3)
    connection = Connection(flat, Sides(push=server, fetch=server), Cancellation())
    connection.upload([0])
    loop = Downpour(connection, manifest, pace=NeverWaits())
    loop.begin(connection.first_fetch(meanwhile=lambda: None))
    gradient = loop.begin_step()

    bias = model.body.bias
    others = [parameter.sum() for parameter in model.parameters() if parameter is not bias]
    loss = torch.stack([*others, bias[1:].sum()]).sum() - 1e-45 * bias[0]
    loss.backward()  # type: ignore[no-untyped-call]
    assert gradient[24] < 0
    loop.accrue(gradient, None, 8, Position(lease=1, offset=8))

    assert gradient[24] == 0
    assert presence.present(gradient) == [Range(0, len(gradient))]
    connection.close()
