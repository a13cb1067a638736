"""Layouts of models, as manifests have them, and how two of them differ. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest

from disttrain.checkpoint.errors import WrongModel
from disttrain.checkpoint.manifest import Manifest, ModelTensor, Piece, Slice
from disttrain.state.layout import ModelLayout, TensorSpec


def tensors(layout: ModelLayout) -> tuple[ModelTensor, ...]:
    """Each tensor of the model once, however it is divided."""
    found = {
        spec.name: ModelTensor(
            name=spec.name, aliases=spec.aliases, shape=spec.of_model, dtype=spec.dtype
        )
        for spec in layout.tensors
    }
    return tuple(found.values())


def pieces(layout: ModelLayout) -> tuple[Piece, ...]:
    """Of a model that is not divided, one for each tensor."""
    return tuple(
        Piece(
            tensor=spec.name,
            slices=tuple(Slice(first=each.start, end=each.stop) for each in spec.box),
            vector=spec.vector,
            first=spec.first,
        )
        for spec in layout.tensors
    )


def layout(manifest: Manifest) -> ModelLayout:
    """The layout of the model in a checkpoint."""
    known = {tensor.name: tensor for tensor in manifest.tensors}
    return ModelLayout(
        tensors=tuple(_spec(known[piece.tensor], piece) for piece in manifest.pieces)
    )


def _spec(tensor: ModelTensor, piece: Piece) -> TensorSpec:
    shape = tuple(each.end - each.first for each in piece.slices)
    is_whole = shape == tensor.shape
    return TensorSpec(
        name=tensor.name,
        aliases=tensor.aliases,
        shape=shape,
        dtype=tensor.dtype,
        vector=piece.vector,
        first=piece.first,
        whole=() if is_whole else tensor.shape,
        begins=() if is_whole else tuple(each.first for each in piece.slices),
    )


def undivided(one: ModelLayout, other: ModelLayout) -> tuple[ModelLayout, ModelLayout]:
    """What two layouts have alike that divide a model otherwise. No values lie so.

    Tensors are in the order of the other one.
    """
    places = {spec.name: place for place, spec in reversed([*enumerate(other.tensors)])}
    return _undivided(one, places), _undivided(other, places)


def _undivided(layout: ModelLayout, places: Mapping[str, int]) -> ModelLayout:
    found = {
        spec.name: replace(
            spec,
            shape=spec.of_model,
            whole=(),
            begins=(),
            vector=spec.vector._replace(partition=0),
            first=0,
        )
        for spec in layout.tensors
    }
    names = sorted(found, key=lambda name: (places.get(name, len(places)), name))
    return ModelLayout(tensors=tuple(found[name] for name in names), own=layout.own)


def without_factors(layout: ModelLayout) -> ModelLayout:
    """The same model, as a process describes it that knows no parameter groups."""
    return ModelLayout(
        tensors=tuple(replace(each, rate_factor=1.0, decay_factor=1.0) for each in layout.tensors),
        own=layout.own,
    )


def first_mismatch(found: ModelLayout, wanted: ModelLayout) -> str | None:
    """A sentence about the first tensor that differs; None if the layouts are the same."""
    for one, other in zip_longest(found.tensors, wanted.tensors):
        if one != other:
            return _difference(one, other)
    if found.own and wanted.own and found.own != wanted.own:
        return (
            f"frozen parameters have other values ({found.own} and {wanted.own}), and with "
            "spec.task.frozen: own each replica has its own; let model() read them from the same "
            "file everywhere"
        )
    return None


def require_same(checkpoint: ModelLayout, model: ModelLayout) -> None:
    """Raise WrongModel, naming the first difference, unless a checkpoint is of this model."""
    difference = first_mismatch(checkpoint, model)
    if difference is not None:
        message = (
            f"the checkpoint is of another model: {difference}; "
            "restore it with the task and arguments it was made with"
        )
        raise WrongModel(message)


def _difference(found: TensorSpec | None, wanted: TensorSpec | None) -> str:
    if found is None or wanted is None:
        return _only_one(found, wanted)
    if found.name != wanted.name:
        return f"the checkpoint has {_said(found)} where the model has {_said(wanted)}"
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return f"'{found.name}' is {_form(found)} in the checkpoint, {_form(wanted)} in the model"
    if _factors(found) != _factors(wanted):
        return (
            f"'{found.name}' is trained with {_factors(found)} of the learning rate and weight "
            f"decay in the checkpoint, with {_factors(wanted)} in the model"
        )
    if found.aliases != wanted.aliases:
        return (
            f"'{found.name}' is shared with {list(found.aliases)} in the checkpoint, "
            f"with {list(wanted.aliases)} in the model"
        )
    return (
        f"{_said(found)} lies in {found.vector} at {found.first} in the checkpoint, "
        f"in {wanted.vector} at {wanted.first} in the model"
    )


def _only_one(found: TensorSpec | None, wanted: TensorSpec | None) -> str:
    if found is not None:
        return f"only the checkpoint has {_said(found)}"
    return f"only the model has {_said(wanted)}" if wanted is not None else "no tensor"


def _factors(spec: TensorSpec) -> tuple[float, float]:
    return spec.rate_factor, spec.decay_factor


def _said(spec: TensorSpec) -> str:
    return f"'{spec.name}' ({_form(spec)})"


def _form(spec: TensorSpec) -> str:
    return f"{spec.dtype} of shape {list(spec.shape)}"
