"""Which tensors a model has, and the place of each in its flat vectors. Moves no values."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import safetensors.torch
import torch
import xxhash
from torch import Tensor, nn

from disttrain.checkpoint import tensor_file
from disttrain.checkpoint.manifest import LONGEST_NAME
from disttrain.holder.values import bytes_of
from disttrain.job.spec import FrozenParameters
from disttrain.job.strategy_kind import Precision
from disttrain.parallel.layers.partitioned import Index
from disttrain.replica.errors import ModelNotSupported
from disttrain.state.layout import ModelLayout, TensorSpec
from disttrain.state.vector import BUFFERS, DOUBLE, FROZEN, SINGLE, Vector
from disttrain.task.checks import type_name
from disttrain.task.groups import NO_GROUP, GroupFactors
from disttrain.transport.header import ElementType

_BUFFERS = {
    kind: SINGLE.beside(BUFFERS)._replace(element_type=element_type)
    for element_type, kinds in {
        ElementType.FLOAT32: (torch.float32, torch.float16, torch.bfloat16),
        ElementType.FLOAT64: (torch.float64,),
        ElementType.INT64: (
            torch.int8,
            torch.int16,
            torch.int32,
            torch.int64,
            torch.uint8,
            torch.bool,
        ),
    }.items()
    for kind in kinds
}
"""Where buffers of a type lie."""

# As the layouts of every version have them; what they have in another order is another model.
_ORDER = (
    SINGLE,
    SINGLE.beside(FROZEN),
    *dict.fromkeys(_BUFFERS.values()),
    DOUBLE,
    DOUBLE.beside(FROZEN),
)

_SHOWN_CHARACTERS = 60
"""Of a name that is too long."""


class _Kinds(NamedTuple):
    """Which vectors hold parameters in one precision, and parameters of which types."""

    trained: Vector
    trained_type: torch.dtype
    frozen_types: tuple[torch.dtype, ...]


_KINDS = {
    Precision.FLOAT32: _Kinds(
        SINGLE, torch.float32, (torch.float32, torch.float16, torch.bfloat16)
    ),
    Precision.FLOAT64: _Kinds(DOUBLE, torch.float64, (torch.float64,)),
}


class OwnPart(NamedTuple):
    """Which tensors of a divided model lie in the vectors of one of its partitions."""

    partition: int
    pieces: Mapping[str, Index | None]
    """Where each parameter here lies in the model's; None: every partition has all of it."""
    shapes: Mapping[str, tuple[int, ...]]
    """Of the model's tensors."""
    own_buffers: Collection[str]
    """Those that no other partition has."""

    def has(self, tensor: Tensor, name: str) -> bool:
        """What every partition has lies in the vectors of the first one alone."""
        if isinstance(tensor, nn.Parameter):
            return not self.partition or self.pieces.get(name) is not None
        return not self.partition or name in self.own_buffers

    def placed(self, spec: TensorSpec) -> TensorSpec:
        """A tensor of this partition, as a part of the model's."""
        whole, index = self.shapes[spec.name], self.pieces.get(spec.name) or ()
        if spec.shape == whole:
            return spec
        sides = [each.indices(length)[0] for each, length in zip(index, whole, strict=False)]
        begins = (*sides, *[0] * (len(whole) - len(sides)))
        return replace(spec, whole=whole, begins=begins)


class Place(NamedTuple):
    """Where a tensor hangs. Looked up anew each time, because a module may replace its buffers."""

    module: nn.Module
    attribute: str

    @property
    def tensor(self) -> Tensor:
        return getattr(self.module, self.attribute)  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelTensors:
    """A model's tensors by vector; specs and places have the same order."""

    layout: ModelLayout
    trained: Vector
    """Where those that are trained lie, if there are any."""
    places: dict[Vector, tuple[Place, ...]]
    own: Mapping[str, Place] = field(default_factory=dict)
    """By first names, the frozen parameters that no vector holds: each replica has its own."""

    def specs(self, vector: Vector) -> tuple[TensorSpec, ...]:
        return tuple(spec for spec in self.layout.tensors if spec.vector == vector)

    @property
    def frozen(self) -> FrozenParameters:
        """Who has the frozen parameters; shared, if there are none."""
        return FrozenParameters.OWN if self.own else FrozenParameters.SHARED

    def with_hash(self) -> "ModelTensors":
        """The same, whose layout tells the values of `own` from others."""
        if not self.own:
            return self
        found = xxhash.xxh3_128()
        for name, place in sorted(self.own.items()):
            tensor = place.tensor
            found.update(f"{name} {type_name(tensor)} {list(tensor.shape)}".encode())
            found.update(raw(tensor))
        return replace(self, layout=replace(self.layout, own=f"xxh3_128:{found.hexdigest()}"))

    def in_model(self, model: nn.Module) -> "ModelTensors":
        """The same of another model of the same layers. Vectors have no places in it."""
        own = {name: _place(model, name) for name in self.own}
        return replace(self, places={}, own=own)

    def tensors(self, vector: Vector) -> list[Tensor]:
        return [place.tensor for place in self.places.get(vector, ())]

    @property
    def vectors(self) -> tuple[Vector, ...]:
        return tuple(vector for vector, count in self.layout.lengths().items() if count)


def describe(
    model: nn.Module,
    precision: Precision = Precision.FLOAT32,
    groups: Mapping[str, GroupFactors] = MappingProxyType({}),
    frozen: FrozenParameters = FrozenParameters.SHARED,
    part: OwnPart | None = None,
) -> ModelTensors:
    """Assign every parameter and every persistent buffer a place in a flat vector.

    Tied tensors get one place and several names. `groups`: of parameters with factors of their
    own, by their first names. Frozen parameters of a replica's own get none. `part`: of a divided
    model, which this model is; only what its partition has gets a place. Raises
    ModelNotSupported for a type that no vector carries, or that is not of this precision, and for a
    name that no checkpoint can hold.
    """
    kinds = _KINDS[precision]
    names = _names_by_tensor(model)
    own = {found[0]: _place(model, found[0]) for tensor, found in names if _is_own(tensor, frozen)}
    names = [
        (tensor, found)
        for tensor, found in names
        if found[0] not in own and (part is None or part.has(tensor, found[0]))
    ]
    for tensor, found in names:
        _require_storable(tensor, found)
    specs: list[TensorSpec] = []
    places: dict[Vector, tuple[Place, ...]] = {}
    for kind in _ORDER:
        members = [found for found in names if _vector_of(*found, kinds) == kind]
        vector = kind if part is None else kind._replace(partition=part.partition)
        plain = _specs(vector, members)
        if part is not None:
            plain = map(part.placed, plain)
        specs.extend(_with_factors(plain, groups) if vector.is_trained else plain)
        if members:
            places[vector] = tuple(_place(model, names[0]) for _, names in members)
    return ModelTensors(
        layout=ModelLayout(tensors=tuple(specs)),
        trained=kinds.trained._replace(partition=0 if part is None else part.partition),
        places=places,
        own=own,
    )


def _names_by_tensor(model: nn.Module) -> list[tuple[Tensor, list[str]]]:
    found: dict[int, tuple[Tensor, list[str]]] = {}
    for name, tensor in named(model):
        found.setdefault(id(tensor), (tensor, []))[1].append(name)
    return list(found.values())


def named(
    model: nn.Module, frozen: FrozenParameters = FrozenParameters.SHARED
) -> Iterable[tuple[str, Tensor]]:
    """The parameters and persistent buffers, under each of their names: what an export holds."""
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if not _is_own(parameter, frozen):
            yield name, parameter
    persistent = model.state_dict().keys()
    for name, buffer in model.named_buffers(remove_duplicate=False):
        if name in persistent:
            yield name, buffer


def raw(tensor: Tensor) -> memoryview:
    """Its bytes. Some types have no counterpart in NumPy, as bfloat16."""
    return bytes_of(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8))


def load(
    model: nn.Module, file: Path, frozen: FrozenParameters, own_of: nn.Module | None = None
) -> None:
    """Give a model exactly what an exported file holds.

    Frozen parameters of a replica's own are those of `own_of`; None: the model's, as they are.
    Raises RuntimeError, as torch does, if the file does not fit.
    """
    own = {
        name: parameter.detach()
        for name, parameter in (own_of or model).named_parameters(remove_duplicate=False)
        if _is_own(parameter, frozen)
    }
    model.load_state_dict(own | safetensors.torch.load_file(file), strict=True)


def _is_own(tensor: Tensor, frozen: FrozenParameters) -> bool:
    is_frozen = isinstance(tensor, nn.Parameter) and not tensor.requires_grad
    return is_frozen and frozen is FrozenParameters.OWN


def _require_storable(tensor: Tensor, names: list[str]) -> None:
    for name in names:
        if len(name) > LONGEST_NAME:
            why = (
                f"has a name of {len(name)} characters, and a checkpoint takes at most "
                f"{LONGEST_NAME}; give it, or the modules around it, a shorter name"
            )
        elif name == tensor_file.METADATA:
            why = "has the name that safetensors files keep for themselves; give it another name"
        else:
            continue
        shown = f"{name[:_SHOWN_CHARACTERS]}..." if len(name) > LONGEST_NAME else name
        message = f"{_kind(tensor)} '{shown}' {why}"
        raise ModelNotSupported(message)


def _kind(tensor: Tensor) -> str:
    return "parameter" if isinstance(tensor, nn.Parameter) else "buffer"


def _vector_of(tensor: Tensor, names: list[str], kinds: _Kinds) -> Vector:
    if not isinstance(tensor, nn.Parameter):
        vector = _BUFFERS.get(tensor.dtype)
    elif tensor.requires_grad:
        vector = kinds.trained if tensor.dtype is kinds.trained_type else None
    else:
        vector = kinds.trained.beside(FROZEN) if tensor.dtype in kinds.frozen_types else None
    if vector is None:
        message = (
            f"{_kind(tensor)} '{names[0]}' has the type {type_name(tensor)}, "
            "which cannot be shared; make it float32 in model()"
        )
        raise ModelNotSupported(message)
    return vector


def _specs(vector: Vector, members: list[tuple[Tensor, list[str]]]) -> Iterable[TensorSpec]:
    first = 0
    for tensor, names in members:
        yield TensorSpec(
            name=names[0],
            aliases=tuple(names[1:]),
            shape=tuple(tensor.shape),
            dtype=type_name(tensor),
            vector=vector,
            first=first,
        )
        first += tensor.numel()


def _with_factors(
    specs: Iterable[TensorSpec], groups: Mapping[str, GroupFactors]
) -> Iterable[TensorSpec]:
    for spec in specs:
        factors = groups.get(spec.name, NO_GROUP)
        yield replace(spec, rate_factor=factors.learning_rate, decay_factor=factors.weight_decay)


def _place(model: nn.Module, name: str) -> Place:
    module, _, attribute = name.rpartition(".")
    return Place(model.get_submodule(module), attribute)
