"""Compute stays on the GPU; values pass through pinned host memory on a stream of their own."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

from builders import placements
from builders.downpours import a_downpour
from builders.networks import a_network, a_normalised_network
from builders.parameter_servers import OneShard
from builders.replicas import tensor
from disttrain.coordinator.protocol.fields import START
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.connection import Connection, Sides
from disttrain.replica.downpour import Downpour
from disttrain.replica.flat_model import FlatModel
from disttrain.task.loss import BatchLoss, numbers
from disttrain.transport.memory import OrdinaryMemory

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU"),
]
GPU = torch.device("cuda")


def a_flat_model(model: nn.Module, buffers: int = 2) -> FlatModel:
    return FlatModel(model, OrdinaryMemory(), GPU, outgoing_buffers=buffers)


def test_the_buffer_of_the_transport_is_pinned_where_it_lies() -> None:
    flat = a_flat_model(a_network())

    assert flat.outgoing[0].gradient.host.is_pinned()
    assert flat.parameters.is_cuda


def test_memory_is_pinned_again_where_a_former_model_had_its_own() -> None:
    addresses = set()

    for _ in range(3):
        flat = a_flat_model(a_network())
        addresses.add(flat.outgoing[0].gradient.host.data_ptr())
        assert flat.outgoing[0].gradient.host.is_pinned()
        del flat

    assert len(addresses) < 3


def test_a_gradient_reaches_the_host_as_it_was_when_it_left() -> None:
    flat = a_flat_model(a_network())
    outgoing = flat.outgoing[0]
    outgoing.gradient.tensor.fill_(3.0)

    outgoing.leave()
    outgoing.wait_left()

    assert (tensor(outgoing.gradient.buffer, placements.PARAMETERS) == 3.0).all()


def test_fetched_values_reach_the_model() -> None:
    model = a_network()
    flat = a_flat_model(model)

    for value in (1.0, 2.0, 3.0):
        tensor(flat.fetch_into()[placements.PARAMETERS], placements.PARAMETERS).fill_(value)
        flat.land()
        flat.adopt(buffers=True)
        assert all((parameter == value).all() for parameter in model.parameters())


@pytest.mark.parametrize("make", [a_network, a_normalised_network])
def test_sgd_with_answers_awaited_equals_a_plain_loop_on_the_gpu(make: type[nn.Module]) -> None:
    model = make().to(GPU)
    plain = copy.deepcopy(model)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.05)
    server = OneShard(0.05)
    connection = Connection(
        a_flat_model(model, 1), Sides(push=server, fetch=server), Cancellation()
    )
    connection.upload([0])
    loop = Downpour(connection, a_downpour(waits_for_answers=True))
    loop.begin(connection.first_fetch(meanwhile=lambda: None))
    generator = torch.Generator().manual_seed(1)

    for _ in range(30):
        x = torch.randn(8, 1, 8, 8, generator=generator).to(GPU)
        y = torch.randint(0, 7, (8,), generator=generator).to(GPU)
        optimizer.zero_grad()
        functional.cross_entropy(plain(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        gradient = loop.begin_step()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        scale = loop.accrue(gradient, BatchLoss(loss), 8, START)
        loop.push()
        loop.adopt(gradient, scale, 8)
    loop.fetch_now()

    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4)
    connection.close()


def test_the_scalars_of_a_step_make_the_host_wait_once() -> None:
    norm, loss = torch.tensor(0.25, device=GPU), torch.tensor(0.1, device=GPU)
    alone = [norm.item(), loss.item()]
    with warnings.catch_warnings(action="ignore"):
        # It says once that it does not find all of them.
        torch.cuda.set_sync_debug_mode("warn")
    try:
        with pytest.warns(UserWarning, match="synchronizing") as waits:
            together = numbers(norm, loss)
    finally:
        torch.cuda.set_sync_debug_mode("default")

    assert together == alone
    assert len(waits) == 1
