import pytest
import torch
from torch import Tensor, nn

from builders import placements
from builders.networks import a_normalised_network
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.flat_vector import ChangedBuffers
from disttrain.state.placement import Range
from disttrain.state.vector import Vector
from disttrain.task.errors import ModelError
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
        placements.BUFFERS_FLOAT32: (),
        placements.BUFFERS_INT64: (),
    }


def test_changed_buffers_are_sent_in_runs_of_neighbours() -> None:
    model = Positions()

    runs = runs_after(model, model.first, model.second)

    spec = {
        s.name: s
        for s in FlatModel(
            Positions(), OrdinaryMemory(), torch.device("cpu"), outgoing_buffers=1
        ).tensors.specs(placements.BUFFERS_FLOAT32)
    }
    table = range(spec["table"].first, spec["table"].first + 3)
    sent = {e for run in runs[placements.BUFFERS_FLOAT32] for e in range(run.first, run.end)}
    assert sent == set(range(15)) - set(table)
    assert runs[placements.BUFFERS_INT64] == (Range(first=0, end=2),)


def test_a_buffer_that_changed_once_is_sent_from_then_on() -> None:
    model = a_normalised_network()
    flat = FlatModel(model, OrdinaryMemory(), torch.device("cpu"), outgoing_buffers=1)
    changed = ChangedBuffers(flat.tensors, flat.buffer_values())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model(torch.randn(4, 1, 8, 8))
    flat.outgoing[0].leave()
    first = changed.runs(flat.outgoing[0].buffers.vectors)

    model.load_state_dict(before | {"2.num_batches_tracked": torch.tensor(1)})
    flat.outgoing[0].leave()

    assert changed.runs(flat.outgoing[0].buffers.vectors) == first
    assert first[placements.BUFFERS_FLOAT32] == (Range(first=0, end=18),)


class Queue(nn.Module):
    """With the place where the next entry goes, and a flag."""

    place: Tensor
    is_warm: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("place", torch.zeros(2, dtype=torch.int32))
        self.register_buffer("is_warm", torch.tensor(True))  # noqa: FBT003


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([(5, True), (6, True), (0, True)], r"'place' went from 6 to 0: .*persistent=False"),
        ([(5, True), (6, False)], r"'is_warm' went from 1 to 0"),
    ],
)
def test_a_whole_number_that_becomes_less_is_no_counter_and_is_refused_by_name(
    values: list[tuple[int, bool]], said: str
) -> None:
    model = Queue()
    flat = FlatModel(model, OrdinaryMemory(), torch.device("cpu"), outgoing_buffers=1)
    changed = ChangedBuffers(flat.tensors, flat.buffer_values())

    def push(place: int, *, is_warm: bool) -> None:
        model.place[1], model.is_warm = place, torch.tensor(is_warm)
        flat.outgoing[0].leave()
        changed.runs(flat.outgoing[0].buffers.vectors)

    for place, is_warm in values[:-1]:
        push(place, is_warm=is_warm)
    with pytest.raises(ModelError, match=said):
        push(values[-1][0], is_warm=values[-1][1])
