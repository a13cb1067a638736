"""The model of the best evaluation, written by the replica that has just measured it."""

from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor, nn

from disttrain.checkpoint import copies, export, tensor_file
from disttrain.checkpoint.element_types import TYPES
from disttrain.checkpoint.errors import CheckpointError
from disttrain.coordinator.protocol.commands import Evaluated, KeepBest
from disttrain.job import stop
from disttrain.job.spec import FrozenParameters
from disttrain.replica import model_tensors
from disttrain.replica.errors import ModelNotSupported
from disttrain.task.checks import type_name
from disttrain.telemetry import logs

LOG = logs.get(__name__)

Content = Callable[[str], Tensor]


def keep(
    rules: KeepBest,
    model: nn.Module,
    measured: Evaluated,
    frozen: FrozenParameters = FrozenParameters.SHARED,
    content: Content | None = None,
) -> bool:
    """Write the model if it is better than the one in the file; whether it was written.

    `content`: see `write`.

    Call it before the model changes. A full disk, or a store that is away, costs this model alone.
    """
    value = rules.by.value_of(measured.means, measured.loss)
    if not rules.by.is_better(value, rules.best):
        return False
    said = {"disttrain.measure": stop.said(rules.name), "disttrain.value": repr(value)}
    try:
        with copies.file_for(rules.file) as file:
            write(model, file, said, frozen, content)
    except CheckpointError as error:
        LOG.warning("the best model was not written", file=rules.file, reason=error)
        return False
    return True


def write(
    model: nn.Module,
    out: Path,
    said: Mapping[str, str],
    frozen: FrozenParameters,
    content: Content | None = None,
) -> None:
    """The file that an export of these values would be, tensor by tensor; `said`: metadata.

    `content`: gives the values of a model that has none itself, by any of a tensor's names. Raises
    CheckpointError, and ModelNotSupported for a type that a buffer has by now.
    """
    state = dict(model_tensors.named(model, frozen))
    tensors = [_described(name, tensor) for name, tensor in state.items()]
    # As in an export: no element lies across its own width.
    tensors.sort(key=lambda tensor: -tensor_file.TYPE_BYTES[tensor.type])
    export.write_tensors(
        out,
        tensors,
        said,
        (model_tensors.raw((content or state.__getitem__)(one.name)) for one in tensors),
    )


def _described(name: str, tensor: Tensor) -> tensor_file.Tensor:
    kind = TYPES.get(type_name(tensor))
    if kind is None:
        message = (
            f"buffer '{name}' has become {type_name(tensor)}, which no file of a model holds; let "
            "the model keep the type that its buffers have in model()"
        )
        raise ModelNotSupported(message)
    return tensor_file.Tensor(name=name, type=kind.file_type, shape=tuple(tensor.shape))
