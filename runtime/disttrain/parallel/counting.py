"""What the partitions of a divided model do for a batch, before there are processes for it.

The parts of the model run on the meta device, with a communicator that counts and sends nothing. So
what is told of messages, bytes and products is what the layers do, not a second description of it.
`pricing` says how long that takes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from disttrain.parallel import micro_batches
from disttrain.parallel.array import DistributedArray
from disttrain.parallel.communicator import (
    Communicator,
    Done,
    Exchange,
    Traffic,
    summed_for_all,
)
from disttrain.parallel.layers.on_one import OnOne, sections, slices_of, through
from disttrain.parallel.layers.partitioned import OverWindows, PartitionedLayer, Value
from disttrain.parallel.layers.unit_filters import ReconstructionTarget, UnitFilters2d
from disttrain.parallel.micro_batches import Turn
from disttrain.parallel.partitioned import Partitioned, require_one_device
from disttrain.parallel.partitioning import partition
from disttrain.parallel.ways import Way
from disttrain.parallel.whole_layers import on_meta
from disttrain.parallel.windows import Grid, on_one


class Loss(Enum):
    """What is to become small, and so what of the output is gathered."""

    OF_OUTPUT = "of the whole output"
    """Who has the samples gathers it."""
    OF_PARTS = "of the divided output"
    """Nobody gathers it, as in `losses.one_vs_all`."""
    OF_STACKS = "of each stack's reconstruction"
    """All stacks jointly: see `reconstruction`. Nobody gathers the output."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnCost:
    """Of one stage of layers that lie whole on a partition, for one slice of a batch."""

    turn: Turn
    flops: float
    backward_flops: float
    nbytes: int
    """What goes on to the next stage; backward gets as much. 0 behind the last one."""
    outputs: tuple[int, ...]
    """Bytes that each of its layers makes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCost:
    """Of one partition, for one batch: a divided layer, or a row of those that are not."""

    flops: float
    """In forward."""
    backward_flops: float = 0.0
    """As many for the gradient of the input, and for those of parameters, as far as they are
    needed."""
    sent: Traffic
    """In forward. Backward sends back what forward has received."""
    received: Traffic
    passes: int = 2
    """1: backward has no messages."""
    sums: int = 0
    """Over all partitions, in forward and backward."""
    summed_bytes: int = 0
    outputs: tuple[int, ...]
    """Bytes of the output of each layer."""
    turns: tuple[TurnCost, ...] = ()
    """Of layers that lie whole on a partition: what this one computes, in the order of forward.
    Messages are those of the turns."""


class _Imagined(Communicator):
    """Of partitions that there are not. Its counts are of the layer that runs."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        # What is computed a second time while messages are under way would count.
        self.overlaps = False

    def begin(self) -> None:
        """Another layer."""
        self.traffic, self.received, self.summed_bytes = Traffic(), Traffic(), 0

    def _exchange(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> Exchange:
        del outgoing
        self.received.messages += len(incoming)
        self.received.nbytes += sum(each.nbytes for each in incoming.values())
        return Done()

    def _reduce(self, tensor: Tensor, *, is_sum: bool) -> Tensor:
        del is_sum
        self.summed_bytes += tensor.nbytes
        return torch.empty_like(tensor)


class _Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts as torch's own counter does, but does not look into what is no product."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0.0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        found = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.flops += formula(*args, **(kwargs or {}), out_val=found)
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What the partitions of a model do for a batch, whatever machines they have."""

    grid: Grid
    costs: Sequence[Sequence[LayerCost]]
    """Of each partition, in the order of the layers."""
    parts: Sequence[Partitioned]


def counted(  # noqa: PLR0913  As `partition`, and the batch.
    model: nn.Module,
    grid: Grid,
    sample: Sequence[int],
    samples: int,
    overrides: Mapping[str, Way] | None = None,
    *,
    loss: Loss = Loss.OF_OUTPUT,
    from_first: bool = False,
    micro_batches: int | None = None,
) -> Counts:
    """A step of `samples` with the model in so many partitions. Raises CannotPartition.

    `model` keeps its values. `overrides` and `micro_batches`: see `partition`. `from_first`: the
    first partition alone has the samples, as in a job; else all have.
    """
    require_one_device([*model.named_parameters(), *model.named_buffers()])
    nowhere = on_meta(model)
    costs, parts = [], []
    for rank in range(grid.size):
        peers = _Imagined(rank, grid.size)
        part = partition(nowhere, grid, peers, sample, overrides, micro_batches=micro_batches)
        value = _input(part, sample, samples, from_first=from_first)
        parts.append(part)
        costs.append([*_of(part, value, micro_batches, loss, from_first=from_first)])
    return Counts(grid=grid, costs=costs, parts=parts)


def _of(
    part: Partitioned,
    value: Value,
    micro_batches: int | None,
    loss: Loss,
    *,
    from_first: bool,
) -> Iterator[LayerCost]:
    peers = part.peers
    assert isinstance(peers, _Imagined)  # noqa: S101  As `counted` makes it.
    target: Value | None = None
    layers = (each for each in part.modules() if isinstance(each, PartitionedLayer))
    for section in sections(layers):
        if not isinstance(section, PartitionedLayer):
            value, cost = _fetched(section[0], value, peers)
            yield cost
            slices = slices_of(section, micro_batches)
            value, cost = _in_turns(section, value, slices, peers)
            yield cost
            continue
        value, cost = _layer(section, value, peers)
        yield cost
        if loss is Loss.OF_STACKS and isinstance(section, OverWindows):
            if target is not None and isinstance(section.windowed, UnitFilters2d):
                yield _reconstruction(section, value, target, peers)
            target = value if isinstance(section.windowed, ReconstructionTarget) else None
    if loss is Loss.OF_OUTPUT and isinstance(value.array, DistributedArray):
        yield _gathered(value.array, peers, in_first=from_first)
    yield from _tied_sum(part)


def _fetched(layer: OnOne, value: Value, peers: _Imagined) -> tuple[Value, LayerCost]:
    """Its input, where it lies."""
    peers.begin()
    array = value.array
    has_gradient = array.tensor.requires_grad
    windows = on_one(layer.place, peers.size, array.height, array.width)
    own = DistributedArray(array.fetch(windows), windows, array.height, array.width, peers)
    return Value(own, value.is_flat), LayerCost(
        flops=0.0,
        sent=peers.traffic,
        received=peers.received,
        passes=1 + has_gradient,
        outputs=(),
    )


def _in_turns(
    section: Sequence[OnOne], value: Value, slices: int, peers: _Imagined
) -> tuple[Value, LayerCost]:
    """Layers in a row whose input is where the first of them lies."""
    peers.begin()
    x = value.whole(value.array.tensor)
    found = through(section, value, slices)
    turns = tuple(_turns(section, x, slices, peers.rank))
    return found, LayerCost(
        flops=sum(each.flops for each in turns),
        backward_flops=sum(each.backward_flops for each in turns),
        sent=peers.traffic,
        received=peers.received,
        outputs=tuple(output for each in turns for output in each.outputs),
        turns=turns,
    )


def _turns(section: Sequence[OnOne], x: Tensor, slices: int, rank: int) -> Iterator[TurnCost]:
    """What this partition computes, as `through` does it. `x`: what the first layer gets."""
    stages = micro_batches.stages(layer.place for layer in section)
    spans = micro_batches.slices(len(x), slices)
    every = micro_batches.of_forward(len(stages), len(spans))
    for turn in micro_batches.of_place(every, stages, rank):
        stage, span = stages[turn.stage], spans[turn.slice]
        before = section[stage.first - 1].shape(1) if turn.stage else x.shape
        given = torch.empty(span.length, *before[1:], device="meta")
        given.requires_grad_(turn.stage > 0 or x.requires_grad)
        costs = list(_computed(section[stage.first : stage.end], given, span.first))
        outputs = tuple(nbytes for _, _, nbytes in costs)
        yield TurnCost(
            turn=turn,
            flops=sum(forward for forward, _, _ in costs),
            backward_flops=sum(backward for _, backward, _ in costs),
            nbytes=outputs[-1] if stage.end < len(section) else 0,
            outputs=outputs,
        )


def _computed(
    layers: Sequence[OnOne], x: Tensor, first_sample: int
) -> Iterator[tuple[float, float, int]]:
    """Products in forward and in backward, and bytes of the output, layer by layer."""
    for layer in layers:
        times = x.requires_grad + any(each.requires_grad for each in layer.parameters())
        with _Products() as counter:
            # An activation may be told to change its input in place, which a leaf does not allow.
            x = layer.computed(x.view_as(x), first_sample)
        yield counter.flops, times * counter.flops, x.nbytes


def _input(part: Partitioned, sample: Sequence[int], samples: int, *, from_first: bool) -> Value:
    x = torch.empty(samples, *sample, device="meta")
    if not from_first:
        return Value.of_input(x, part.peers)
    return part.input_of_first(part.no_input(samples, x.dtype).to("meta") if part.peers.rank else x)


def _gathered(array: DistributedArray, peers: _Imagined, *, in_first: bool) -> LayerCost:
    """The output, where the loss is."""
    peers.begin()
    if in_first:
        found, passes = array.fetch(on_one(0, peers.size, array.height, array.width)), 2
    else:
        found, passes = array.everywhere(), 1
    return LayerCost(
        flops=0.0,
        sent=peers.traffic,
        received=peers.received,
        passes=passes,
        outputs=(found.nbytes,),
    )


def _tied_sum(part: Partitioned) -> list[LayerCost]:
    """The gradients of tied parameters are summed once, all together."""
    layers = [each for each in part.modules() if isinstance(each, PartitionedLayer)]
    tied = [own for layer in layers if layer.is_tied for own in layer.parameters()]
    if not tied:
        return []
    return [
        LayerCost(
            flops=0.0,
            sent=Traffic(),
            received=Traffic(),
            sums=1,
            summed_bytes=sum(each.nbytes for each in tied),
            outputs=(),
        )
    ]


def _layer(layer: PartitionedLayer, value: Value, peers: _Imagined) -> tuple[Value, LayerCost]:
    peers.begin()
    has_gradient = value.array.tensor.requires_grad
    with _Products() as counter:
        value = layer(value)
    times = has_gradient + any(each.requires_grad for each in layer.parameters())
    return value, LayerCost(
        flops=counter.flops,
        backward_flops=times * counter.flops,
        sent=peers.traffic,
        received=peers.received,
        passes=1 + has_gradient,
        sums=2 * peers.traffic.sums,
        summed_bytes=2 * peers.summed_bytes,
        outputs=(value.array.tensor.nbytes,),
    )


def _reconstruction(layer: OverWindows, value: Value, target: Value, peers: _Imagined) -> LayerCost:
    """As `reconstruction_losses` gives a target back and sums up its error."""
    assert isinstance(target.array, DistributedArray)  # noqa: S101  As a target leaves it.
    peers.begin()
    with _Products() as counter:
        back = layer.transposed(value, target.array.windows).tensor
        summed_for_all(back.sum(), peers)
    return LayerCost(
        flops=counter.flops,
        backward_flops=2 * counter.flops,
        sent=peers.traffic,
        received=peers.received,
        sums=peers.traffic.sums,
        summed_bytes=peers.summed_bytes,
        outputs=(back.nbytes,),
    )
