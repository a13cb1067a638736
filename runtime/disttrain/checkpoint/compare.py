"""The first difference between two models' layouts. Pure."""

from itertools import zip_longest

from disttrain.checkpoint.errors import WrongModel
from disttrain.parameter_server.layout import ModelLayout, TensorSpec


def first_mismatch(found: ModelLayout, wanted: ModelLayout) -> str | None:
    """A sentence about the first tensor that differs; None if the layouts are the same."""
    for one, other in zip_longest(found.tensors, wanted.tensors):
        if one != other:
            return _difference(one, other)
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
    if wanted is None or found is None:
        extra, place = (found, "checkpoint") if wanted is None else (wanted, "model")
        name = "" if extra is None else f"'{extra.name}' of shape {list(extra.shape)}"
        return f"only the {place} has the tensor {name}"
    if found.name != wanted.name:
        return f"the checkpoint has {_said(found)} where the model has {_said(wanted)}"
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return f"tensor {_said(found)} in the checkpoint and {_form(wanted)} in the model"
    if found.aliases != wanted.aliases:
        return (
            f"tensor '{found.name}' is shared with {list(found.aliases)} in the checkpoint "
            f"and with {list(wanted.aliases)} in the model"
        )
    return (
        f"tensor {_said(found)} lies in {found.vector.name} at {found.first} in the checkpoint "
        f"and in {wanted.vector.name} at {wanted.first} in the model"
    )


def _said(spec: TensorSpec) -> str:
    return f"'{spec.name}' {_form(spec)}"


def _form(spec: TensorSpec) -> str:
    return f"is {spec.dtype} of shape {list(spec.shape)}"
