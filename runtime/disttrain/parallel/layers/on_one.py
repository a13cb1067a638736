"""Layers that lie whole on one partition each, and batches that go through them in slices."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.func import functional_call

from disttrain.parallel import micro_batches
from disttrain.parallel.array import DistributedArray
from disttrain.parallel.communicator import Communicator, Exchange
from disttrain.parallel.layers.dropout import HashDropout
from disttrain.parallel.layers.partitioned import PartitionedLayer, Value, type_for_all
from disttrain.parallel.micro_batches import Turn
from disttrain.parallel.windows import Span, on_one


class OnOne(PartitionedLayer):
    """A layer that one partition computes as it is. The others have nothing of it."""

    def __init__(
        self,
        module: nn.Module,
        place: int,
        output: tuple[int, int, int],
        *,
        is_flat: bool,
        peers: Communicator,
    ) -> None:
        """`output`: channels, height and width; flat, features are the rows of one channel."""
        super().__init__(peers, module if peers.rank == place else None)
        self.place, self.output, self.is_flat = place, output, is_flat
        self.kind = type(module)
        """What it is, in each partition."""
        self._dropout = module if isinstance(module, HashDropout) else None
        if peers.rank == place:
            self.take_over(module)
            # All of it, and in this partition alone.
            self.pieces = dict.fromkeys(self.pieces, ())

    def forward(self, value: Value) -> Value:
        return through([self], value, 1)

    def computed(self, x: Tensor, first_sample: int) -> Tensor:
        """Where it lies: its output, of a slice of a batch in its undivided shape."""
        if self._dropout is not None:
            self._dropout.first_sample = first_sample
        buffers = dict(self.named_buffers())
        # Copies: what backward needs of them stays as it is, whatever becomes of the buffers.
        given = {
            **dict(self.named_parameters()),
            **{name: buffers[name].clone() for name in buffers},
        }
        y: Tensor = functional_call(self.called, given, (x,))
        for name, buffer in buffers.items():
            # The layer may have put another tensor in its place.
            buffer.data.copy_(given[name])
        return y

    def shape(self, samples: int) -> tuple[int, ...]:
        """Of its undivided output."""
        return (samples, self.output[1]) if self.is_flat else (samples, *self.output)


def sections(
    layers: Iterable[PartitionedLayer],
) -> Iterator[PartitionedLayer | list[OnOne]]:
    """In their order, with those that lie on one partition and follow each other together."""
    for is_whole, found in itertools.groupby(layers, lambda each: isinstance(each, OnOne)):
        if is_whole:
            yield [each for each in found if isinstance(each, OnOne)]
        else:
            yield from found


def slices_of(section: Sequence[OnOne], micro_batches: int | None) -> int:
    """Into how many a batch is cut: as is wanted, or as many as partitions have these layers."""
    places = {layer.place for layer in section}
    return 1 if len(places) == 1 else micro_batches or len(places)


def through(layers: Sequence[OnOne], value: Value, slices: int) -> Value:
    """What layers in a row make of a batch, which goes through them in so many slices.

    What crosses has the type of the first layer's input. In a region of autocast that is float32:
    so all know the type, and nothing is lost.
    """
    array, peers, last = value.array, layers[0].peers, layers[-1]
    x = array.fetch(on_one(layers[0].place, peers.size, array.height, array.width))
    if layers[0].place == peers.rank:
        x = value.whole(x)
    run = _Run(layers, slices, peers)
    # All partitions have to come by in backward, or none: some have no parameters here.
    token = x.new_empty(0, requires_grad=torch.is_grad_enabled())
    y = _Through.apply(run, x, token, *run.parameters)
    _, height, width = last.output
    windows = on_one(last.place, peers.size, height, width)
    return Value(DistributedArray(y, windows, height, width, peers), last.is_flat)


class _Through(Function):
    @staticmethod
    def forward(ctx: Any, run: "_Run", x: Tensor, token: Tensor, *own: Tensor) -> Tensor:
        del own
        ctx.run = run
        return run.forward(x, keeps=token.requires_grad)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        of_input, of_own = ctx.run.backward(gradient)
        return None, of_input, None, *of_own


class _Kept:
    """What forward of one turn leaves to backward."""

    def __init__(self, x: Tensor, *, has_gradient: bool) -> None:
        self._x: Tensor | None = x
        self._shape = x.shape
        self._token = x.new_empty(0, requires_grad=has_gradient)
        self.output = x
        self.found: Tensor | None = None
        """The gradient of the input."""

    def begun(self) -> Tensor:
        """The input, which is no leaf: a layer may change it in place."""
        found: Tensor = _Given.apply(self._token, self)
        return found

    def take(self) -> Tensor:
        assert self._x is not None  # noqa: S101  It begins once.
        x, self._x = self._x, None
        return x

    def backward(self, gradient: Tensor, parameters: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients of the parameters. That of the input is kept here."""
        trained = [each for each in parameters if each.requires_grad]
        wanted = [*trained, *([self._token] if self._token.requires_grad else [])]
        if not self.output.requires_grad or not wanted:
            return [None] * len(parameters)
        given = torch.autograd.grad([self.output], wanted, [gradient], allow_unused=True)
        found = dict(zip(map(id, trained), given, strict=False))
        return [found.get(id(each)) for each in parameters]

    @property
    def of_input(self) -> Tensor:
        return self._token.new_zeros(self._shape) if self.found is None else self.found


class _Given(Function):
    @staticmethod
    def forward(ctx: FunctionCtx, token: Tensor, kept: _Kept) -> Tensor:
        del token
        ctx.kept = kept  # type: ignore[attr-defined]
        return kept.take()

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.kept.found = gradient  # type: ignore[attr-defined]
        return gradient.new_empty(0), None


class _Run:
    """One partition's side of one pass, forward and backward."""

    def __init__(self, layers: Sequence[OnOne], slices: int, peers: Communicator) -> None:
        self._layers, self._wanted, self._peers = layers, slices, peers
        self._stages = micro_batches.stages(layer.place for layer in layers)
        own = [layer for layer in layers if layer.place == peers.rank]
        self.parameters = [each for layer in own for each in layer.parameters()]
        """Of this partition's layers."""
        self._slices: Sequence[Span] = ()
        self._turns: Sequence[Turn] = ()
        """Of this partition, as forward takes them."""
        self._kept: dict[Turn, _Kept] = {}
        self._nothing: Tensor | None = None
        """The gradient of an input that another partition has."""

    def forward(self, x: Tensor, *, keeps: bool) -> Tensor:
        """The output in the last stage's partition, elsewhere nothing. Raises GroupLost.

        `keeps`: what backward needs.
        """
        self._slices = micro_batches.slices(len(x), self._wanted)
        every = micro_batches.of_forward(len(self._stages), len(self._slices))
        self._turns = micro_batches.of_place(every, self._stages, self._peers.rank)
        self._nothing = torch.zeros_like(x) if self._stages[0].place != self._peers.rank else None
        kind = type_for_all(x)
        post = _Post(self._peers)
        for turn in self._turns:
            if turn.stage:
                shape = self._before(turn).shape(self._slices[turn.slice].length)
                post.expect(turn, self._place(turn.stage - 1), x.new_empty(shape, dtype=kind))
        outputs = []
        for turn in self._turns:
            kept = _Kept(
                post.take(turn) if turn.stage else self._cut(x.detach(), turn),
                has_gradient=keeps and (turn.stage > 0 or x.requires_grad),
            )
            with torch.set_grad_enabled(keeps):
                kept.output = self._computed(turn, kept.begun()).to(kind)
            if self._is_last(turn):
                outputs.append(kept.output.detach().reshape(-1, *self._layers[-1].output))
            else:
                post.send(self._place(turn.stage + 1), kept.output)
            if keeps:
                self._kept[turn] = kept
        post.close()
        channels = self._layers[-1].output[0]
        return torch.cat(outputs) if outputs else x.new_empty((len(x), channels, 0, 0), dtype=kind)

    def backward(self, gradient: Tensor) -> tuple[Tensor | None, list[Tensor | None]]:
        """The gradients of the input and of this partition's parameters. Raises GroupLost.

        `gradient`: of the output, in the last stage's partition.
        """
        backwards = self._turns[::-1]
        if backwards and not self._kept:
            message = "each output of layers on one partition goes backward once"
            raise RuntimeError(message)
        post = _Post(self._peers)
        for turn in backwards:
            if not self._is_last(turn):
                room = torch.empty_like(self._kept[turn].output, requires_grad=False)
                post.expect(turn, self._place(turn.stage + 1), room)
        of_input = []
        totals = _Totals()
        for turn in backwards:
            kept, parameters = self._kept.pop(turn), self._parameters_of(turn)
            of_output = self._cut(gradient, turn) if self._is_last(turn) else post.take(turn)
            found = kept.backward(of_output.reshape(kept.output.shape), parameters)
            for each, one in zip(parameters, found, strict=True):
                if one is not None:
                    totals.add(each, one)
            if turn.stage:
                post.send(self._place(turn.stage - 1), kept.of_input)
            else:
                of_input.append(kept.of_input)
        post.close()
        whole = torch.cat(of_input[::-1]) if of_input else self._nothing
        return whole, [totals.of(each) for each in self.parameters]

    def _computed(self, turn: Turn, x: Tensor) -> Tensor:
        for layer in self._of(turn):
            x = layer.computed(x, self._slices[turn.slice].first)
        return x

    def _of(self, turn: Turn) -> Sequence[OnOne]:
        stage = self._stages[turn.stage]
        return self._layers[stage.first : stage.end]

    def _parameters_of(self, turn: Turn) -> list[Tensor]:
        return [each for layer in self._of(turn) for each in layer.parameters()]

    def _before(self, turn: Turn) -> OnOne:
        """The layer before its stage."""
        return self._layers[self._stages[turn.stage].first - 1]

    def _place(self, stage: int) -> int:
        return self._stages[stage].place

    def _is_last(self, turn: Turn) -> bool:
        return turn.stage + 1 == len(self._stages)

    def _cut(self, batch: Tensor, turn: Turn) -> Tensor:
        if len(self._slices) == 1:
            return batch
        # A copy: autograd lets nobody change a part of what it does not know in place.
        return batch[slice(*self._slices[turn.slice])].clone()


class _Totals:
    """Gradients of parameters, added up over slices."""

    def __init__(self) -> None:
        self._found: dict[int, Tensor] = {}
        self._own: set[int] = set()
        """Those whose memory nobody else has: a slice's gradient may also be that of its input."""

    def add(self, parameter: Tensor, one: Tensor) -> None:
        key = id(parameter)
        if key not in self._found:
            self._found[key] = one
        elif key not in self._own:
            self._found[key] = self._found[key] + one
            self._own.add(key)
        else:
            self._found[key].add_(one)

    def of(self, parameter: Tensor) -> Tensor | None:
        return self._found.get(id(parameter))


class _Post:
    """Messages of one pass. All rooms are there before anything is waited for.

    So a slice travels while both sides compute, and who sends goes on at once.
    """

    def __init__(self, peers: Communicator) -> None:
        self._peers = peers
        self._expected: dict[Turn, tuple[Tensor, Exchange]] = {}
        self._sent: list[Exchange] = []

    def expect(self, turn: Turn, source: int, room: Tensor) -> None:
        """In the order in which they are sent."""
        self._expected[turn] = room, self._peers.exchange({}, {source: room})

    def take(self, turn: Turn) -> Tensor:
        room, under_way = self._expected.pop(turn)
        under_way.wait()
        return room

    def send(self, to: int, tensor: Tensor) -> None:
        self._sent.append(self._peers.exchange({to: tensor.detach().contiguous()}, {}))

    def close(self) -> None:
        for each in self._sent:
            each.wait()
