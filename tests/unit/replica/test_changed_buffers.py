import torch
from torch import nn

from builders.networks import a_normalised_network
from disttrain.layout import Range
from disttrain.replica.changed_buffers import ChangedBuffers
from disttrain.replica.flat_model import FlatModel
from disttrain.transport.header import Vector
from disttrain.transport.memory import OrdinaryMemory


class Positions(nn.Module):
    """A constant buffer between two normalisations."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.BatchNorm1d(4, affine=False)
        self.register_buffer("table", torch.arange(3.0))
        self.second = nn.BatchNorm1d(2, affine=False)
        self.weight = nn.Parameter(torch.ones(1))


def runs_after(model: nn.Module, *forwards: nn.Module) -> dict[Vector, tuple[Range, ...]]:
    flat = FlatModel(model, OrdinaryMemory(), torch.device("cpu"), outgoing_buffers=1)
    changed = ChangedBuffers(flat.tensors, flat.buffer_values())
    for module in forwards:
        module(torch.randn(8, 4 if module is getattr(model, "first", None) else 2))
    flat.outgoing[0].leave()
    return changed.runs(flat.outgoing[0].buffers.vectors)


def test_constant_buffers_are_not_sent() -> None:
    assert runs_after(a_normalised_network()) == {
        Vector.BUFFERS_FLOAT32: (),
        Vector.BUFFERS_INT64: (),
    }


def test_changed_buffers_are_sent_in_runs_of_neighbours() -> None:
    model = Positions()

    runs = runs_after(model, model.first, model.second)

    spec = {
        s.name: s
        for s in FlatModel(
            Positions(), OrdinaryMemory(), torch.device("cpu"), outgoing_buffers=1
        ).tensors.specs(Vector.BUFFERS_FLOAT32)
    }
    table = range(spec["table"].first, spec["table"].first + 3)
    sent = {e for run in runs[Vector.BUFFERS_FLOAT32] for e in range(run.first, run.end)}
    assert sent == set(range(15)) - set(table)
    assert runs[Vector.BUFFERS_INT64] == (Range(first=0, end=2),)


def test_a_buffer_that_changed_once_is_sent_from_then_on() -> None:
    model = a_normalised_network()
    flat = FlatModel(model, OrdinaryMemory(), torch.device("cpu"), outgoing_buffers=1)
    changed = ChangedBuffers(flat.tensors, flat.buffer_values())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model(torch.randn(4, 1, 8, 8))
    flat.outgoing[0].leave()
    first = changed.runs(flat.outgoing[0].buffers.vectors)

    model.load_state_dict(before)
    flat.outgoing[0].leave()

    assert changed.runs(flat.outgoing[0].buffers.vectors) == first
    assert first[Vector.BUFFERS_FLOAT32] == (Range(first=0, end=18),)
