"""An ordinary model, divided over a grid of partitions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from torch import nn

from disttrain.parallel import whole_layers
from disttrain.parallel.communicator import Communicator
from disttrain.parallel.layers.dropout import HashDropout
from disttrain.parallel.layers.on_one import OnOne, sections, slices_of
from disttrain.parallel.layers.partitioned import (
    Dropped,
    Elementwise,
    Features,
    Flat,
    Normalised,
    OverWindows,
    PartitionedLayer,
)
from disttrain.parallel.layers.sliding import AveragePooling, Convolution, MaxPooling
from disttrain.parallel.layers.windowed import Windowed
from disttrain.parallel.partitioned import (
    CannotPartition,
    Partitioned,
    Shape,
    require_one_device,
)
from disttrain.parallel.ways import Way, Ways
from disttrain.parallel.windows import Grid, split

_ELEMENTWISE = (
    nn.CELU,
    nn.ELU,
    nn.GELU,
    nn.Hardswish,
    nn.Hardtanh,
    nn.Identity,
    nn.LeakyReLU,
    nn.LogSigmoid,
    nn.Mish,
    nn.ReLU,
    nn.SELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softplus,
    nn.Softsign,
    nn.Tanh,
)
_SLIDING: Mapping[type[nn.Module], Callable[[Any], Windowed]] = {
    nn.Conv2d: Convolution,
    nn.MaxPool2d: MaxPooling,
    nn.AvgPool2d: AveragePooling,
}
_NO_SLICES = (
    "layers in a row on several partitions get it in slices, so set microBatches to 1, or divide "
    "this layer"
)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def partition(  # noqa: PLR0913  What a part depends on.
    model: nn.Module,
    grid: Grid,
    peers: Communicator,
    sample: Sequence[int],
    overrides: Mapping[str, Way] | None = None,
    *,
    micro_batches: int | None = None,
    seed: int = 0,
) -> "Partitioned":
    """This partition's part of an `nn.Sequential`, whose layers may be such, too.

    `sample`: the shape of one, (channels, height, width) or (features,). `overrides`: by the name
    of a layer, how it is divided; of a container, all that is in it. `micro_batches`: slices in
    which a batch goes through layers in a row that lie whole on several partitions; as many as
    these are, if nobody says. `seed`: of dropout. The model may be on the meta device; then so are
    the parts. Raises CannotPartition.
    """
    if grid.size != peers.size:
        message = f"grid: {grid.rows} x {grid.columns} are {grid.size} partitions, not {peers.size}"
        raise CannotPartition(message)
    if not _is_chain(model):
        message = (
            f"the model is a {type(model).__name__}; only an nn.Sequential without a forward() or "
            "hooks of its own tells in which order its layers come"
        )
        raise CannotPartition(message)
    _refuse_sharing(model)
    require_one_device([*model.named_parameters(), *model.named_buffers()])
    shape = _shape_of(sample)
    ways = Ways(dict(overrides or {}), peers.size)
    ways.check(model)
    made = _Partitioning(grid, peers, ways, seed)
    layers = made.container(cast("nn.Sequential", model), "", shape)
    made.check_slices(layers, micro_batches)
    return Partitioned(layers, peers, made.shape, made.notes, shape, micro_batches)


def _is_chain(module: nn.Module) -> bool:
    """Whether it only calls what is in it, one after the other."""
    is_plain = isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward
    return is_plain and not _has_hooks(module)


def _has_hooks(module: nn.Module) -> bool:
    # What torch calls beside forward(), such as what old-style weight normalisation needs, and
    # beside backward.
    return any(getattr(module, name) for name in _HOOKS)


def _refuse_sharing(model: nn.Module) -> None:
    """What two layers have would be changed apart."""
    owners: dict[int, str] = {}
    parameters = model.named_parameters(remove_duplicate=False)
    buffers = model.named_buffers(remove_duplicate=False)
    for kind, values in (("parameter", parameters), ("buffer", buffers)):
        for name, value in values:
            owner = owners.setdefault(id(value), name)
            if owner != name:
                message = f"{name}: it is the same {kind} as {owner}, which cannot be divided twice"
                raise CannotPartition(message)


def _shape_of(sample: Sequence[int]) -> Shape:
    if len(sample) == 1:
        return Shape(channels=1, height=sample[0], width=1, is_flat=True)
    if len(sample) == 3:
        return Shape(channels=sample[0], height=sample[1], width=sample[2])
    message = (
        f"sample: must be (channels, height, width) or (features,), got {tuple(sample)}; only "
        "images and features are divided"
    )
    raise CannotPartition(message)


@dataclass(slots=True)
class _Partitioning:
    grid: Grid
    peers: Communicator
    ways: Ways
    seed: int
    notes: list[str] = field(default_factory=list)
    layers: int = 0
    place: int | None = None
    """The partition where the latest layer lies whole, if it does."""
    inputs: dict[str, tuple[nn.Module, Shape]] = field(default_factory=dict)
    """Layers on one partition, and what they are called with."""
    need_batches: dict[str, str] = field(default_factory=dict)
    """Layers on one partition that compute something else with a slice of a batch, and why."""
    shape: Shape = field(default_factory=lambda: Shape(channels=0, height=0, width=0))
    """Behind the latest layer."""

    def check_slices(self, layers: nn.Sequential, micro_batches: int | None) -> None:
        """That all which is called with slices of a batch can be."""
        named = {
            each: name
            for name, each in layers.named_modules()
            if isinstance(each, PartitionedLayer)
        }
        for section in sections(named):
            if isinstance(section, PartitionedLayer) or slices_of(section, micro_batches) == 1:
                continue
            for name in map(named.__getitem__, section):
                why = self.need_batches.get(name) or whole_layers.mixing(*self.inputs[name])
                if why:
                    raise CannotPartition(f"layer {name}: {why}; {_NO_SLICES}")

    def container(self, module: nn.Sequential, name: str, shape: Shape) -> nn.Sequential:
        self.shape = shape
        found = nn.Sequential()
        # named_children() leaves out what comes a second time.
        for own, child in module._modules.items():  # noqa: SLF001
            assert child is not None  # noqa: S101  A Sequential could not call it.
            path = f"{name}.{own}" if name else own
            if _is_chain(child) and self.ways.of(path) != "whole":
                chain = cast("nn.Sequential", child)
                made: nn.Module = self.container(chain, path, self.shape)
            else:
                made, self.shape = self._layer(child, path, self.shape)
                self.place = made.place if isinstance(made, OnOne) else None
            found.add_module(own, made)
        return found

    def _layer(self, module: nn.Module, name: str, shape: Shape) -> tuple[nn.Module, Shape]:
        self.layers += 1
        way = self.ways.of(name)
        if way == "whole" or isinstance(way, int):
            # So a mask is the same wherever a layer lies, and however many slices there are.
            called = self._hashed(module, name) if type(module) is nn.Dropout else module
            return self._on_one(called, name, shape, way if isinstance(way, int) else 0)
        if _has_hooks(module):
            return self._kept_whole(module, name, shape)
        for kinds, make in self._makers.items():
            # A subclass may compute something else.
            if type(module) in kinds:
                return make(module, name, shape)
        windowed = _windowed(module)
        if windowed is not None:
            return self._over_windows(windowed, name, shape)
        return self._kept_whole(module, name, shape)

    def _kept_whole(self, module: nn.Module, name: str, shape: Shape) -> tuple[nn.Module, Shape]:
        if name in self.ways.given:
            self.ways.require(name)
        place = self.place or 0
        self.notes.append(
            f"{name} ({type(module).__name__}) is not divided: partition {place} computes it, and "
            f"gathers {shape.elements:,} numbers of each sample"
        )
        return self._on_one(module, name, shape, place)

    @property
    def _makers(self) -> "Mapping[tuple[type[nn.Module], ...], _Make]":
        return {
            (nn.Flatten,): self._flat,
            _ELEMENTWISE: self._elementwise,
            (nn.Dropout, HashDropout): self._dropout,
            (nn.Linear,): self._features,
            (nn.BatchNorm2d,): self._normalised,
        }

    def _flat(self, module: Any, name: str, shape: Shape) -> tuple[nn.Module, Shape]:
        """Its elements stay where they are: who needs them in order fetches all of them."""
        if (module.start_dim, module.end_dim) not in {(1, -1), (1, shape.dimensions)}:
            return self._kept_whole(module, name, shape)
        self.ways.require_none(name)
        if self.place is not None:
            return self._on_one(module, name, shape, self.place)
        flat = Shape(channels=1, height=shape.elements, width=1, is_flat=True)
        return Flat(self.peers), flat

    def _elementwise(self, module: nn.Module, name: str, shape: Shape) -> tuple[nn.Module, Shape]:
        """As what comes before it is divided."""
        self.ways.require_none(name)
        if self.place is not None:
            return self._on_one(module, name, shape, self.place)
        return Elementwise(self.peers, module), shape

    def _dropout(self, module: Any, name: str, shape: Shape) -> tuple[nn.Module, Shape]:
        self.ways.require_none(name)
        hashed = self._hashed(module, name)
        if self.place is not None:
            return self._on_one(hashed, name, shape, self.place)
        return Dropped(hashed, self.peers), shape

    def _hashed(self, module: nn.Dropout | HashDropout, name: str) -> HashDropout:
        if isinstance(module, HashDropout):
            return module
        try:
            return HashDropout(module.p, seed=self.seed, layer=self.layers)
        except ValueError as error:
            raise CannotPartition(f"layer {name}: {error}") from error

    def _normalised(self, module: Any, name: str, shape: Shape) -> tuple[nn.Module, Shape]:
        if self.ways.grid_of(name) is not None:
            self.ways.require_none(name)
        self.ways.require(name, "spatial", grid=True)
        return Normalised(module, self.peers), shape

    def _over_windows(self, layer: Windowed, name: str, shape: Shape) -> tuple[nn.Module, Shape]:
        self.ways.require(name, "spatial", grid=True)
        grid = self.ways.grid_of(name) or self.grid
        if shape.is_flat:
            raise CannotPartition(f"layer {name}: it needs rows and columns, and gets features")
        try:
            height, width = layer.output_size(shape.height, shape.width)
        except ValueError as error:
            raise CannotPartition(f"layer {name}: {error}") from error
        units = height // layer.unit[0], width // layer.unit[1]
        if units[0] < grid.rows or units[1] < grid.columns:
            message = (
                f"layer {name}: its output of {units[0]} x {units[1]} cannot be divided over "
                f"{grid.rows} x {grid.columns} partitions; take fewer, or say "
                f"partitioning.{name}: whole"
            )
            raise CannotPartition(message)
        outputs = grid.windows(height, width, layer.unit, self.peers.size)
        made = OverWindows(layer, outputs, (shape.height, shape.width), self.peers)
        channels = layer.output_channels(shape.channels)
        return made, Shape(channels=channels, height=height, width=width)

    def _features(self, module: nn.Linear, name: str, shape: Shape) -> tuple[nn.Module, Shape]:
        self.ways.require(name, "features")
        if not shape.is_flat:
            message = f"layer {name}: a Linear needs features; put an nn.Flatten before it"
            raise CannotPartition(message)
        if shape.elements != module.in_features:
            message = (
                f"layer {name}: it takes {module.in_features} features and gets {shape.elements}"
            )
            raise CannotPartition(message)
        if module.out_features < self.peers.size:
            message = (
                f"layer {name}: {module.out_features} outputs cannot be divided over "
                f"{self.peers.size} partitions; take fewer, or say partitioning.{name}: whole"
            )
            raise CannotPartition(message)
        made = Features(module, split(module.out_features, self.peers.size), self.peers)
        return made, Shape(channels=1, height=module.out_features, width=1, is_flat=True)

    def _on_one(
        self, module: nn.Module, name: str, shape: Shape, place: int
    ) -> tuple[nn.Module, Shape]:
        traced = whole_layers.traced(module, name, shape)
        self.inputs[name] = module, shape
        if traced.needs_batch:
            self.need_batches[name] = traced.needs_batch
        after = traced.output
        output = (after.channels, after.height, after.width)
        made = OnOne(module, place, output, is_flat=after.is_flat, peers=self.peers)
        return made, after


_Make = Callable[[Any, str, Shape], tuple[nn.Module, Shape]]


def _windowed(module: nn.Module) -> Windowed | None:
    if isinstance(module, Windowed):
        return module
    made = _SLIDING.get(type(module))
    if made is None or getattr(module, "padding_mode", "zeros") != "zeros":
        return None
    if getattr(module, "return_indices", False):
        return None
    return made(module)
