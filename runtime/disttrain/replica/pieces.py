"""Which rows of each parameter a rank has, where the ranks of a replica divide the model by FSDP2.

A rank trains its rows as one trains a model: they lie in its flat vectors, and on shards of its
own. The model that computes is another one, which takes its values from them: see `sharded_model`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from disttrain.groups.steps import Collective
from disttrain.job.spec import FrozenParameters
from disttrain.job.strategy_kind import Precision
from disttrain.parallel.communicator import Communicator
from disttrain.parallel.initial_values import give
from disttrain.parallel.layers.partitioned import Index
from disttrain.parallel.partitioned import PartOfModel
from disttrain.parallel.whole_layers import without_values
from disttrain.replica import model_tensors
from disttrain.replica.model_tensors import OwnPart
from disttrain.state.layout import ModelLayout, TensorSpec
from disttrain.task import checks
from disttrain.task.errors import ModelError
from disttrain.task.groups import GroupFactors


def rows(length: int, rank: int, ranks: int) -> slice:
    """Of a parameter's first dimension, as torch.chunk divides it: the last ranks may have none."""
    each = -(-length // ranks)
    first = min(rank * each, length)
    return slice(first, min(first + each, length))


class Pieces(PartOfModel):
    """One rank's rows of every parameter, by the names of the model, and all of its buffers."""

    def __init__(self, module: nn.Module, peers: Communicator, pieces: Mapping[str, Index]) -> None:
        """`module`: has the rows. Nobody calls it."""
        self.module = module
        self.peers = peers
        self._pieces = pieces

    @property
    def pieces(self) -> Mapping[str, Index | None]:
        return self._pieces

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        return self.module.named_parameters()

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        return self.module.named_buffers()

    def state_dict(self) -> dict[str, Any]:
        return self.module.state_dict()

    def get_submodule(self, name: str) -> nn.Module:
        return self.module.get_submodule(name)


class Sharding(NamedTuple):
    """A whole model, and among how many ranks its rows are divided."""

    model: nn.Module
    ranks: int
    device: torch.device
    initialise: Callable[[PartOfModel], None] | None = None
    """Gives pieces their initial values; None: the model has them."""

    def check(self) -> None:
        """Raises ModelError for a model that has no rows."""
        for name, parameter in self.model.named_parameters():
            if parameter.dim() == 0:
                message = (
                    f"spec.replicas.inner: fsdp2 divides parameters by rows, and '{name}' is a "
                    "single number; make it a tensor of one element, or take ddp"
                )
                raise ModelError(message)

    def layout(
        self,
        precision: Precision,
        groups: Mapping[str, GroupFactors],
        frozen: FrozenParameters,
    ) -> ModelLayout:
        """Of all ranks. Raises ModelNotSupported."""
        found: list[TensorSpec] = []
        for rank in range(self.ranks):
            module, pieces = self._rows_of(rank, torch.device("meta"))
            own = self._own_part(rank, pieces)
            described = model_tensors.describe(module, precision, groups, frozen, own)
            found += described.layout.tensors
        return ModelLayout(tensors=tuple(found))

    def of_rank(self, group: Collective) -> Pieces:
        """One process's, with their initial values. Raises ModelError."""
        module, pieces = self._rows_of(group.peers.rank, self.device)
        found = Pieces(module, group.peers, pieces)
        if self.initialise is None:
            give(found, (*self.model.named_parameters(), *self.model.named_buffers()))
        else:
            self.initialise(found)
        for name, parameter in found.named_parameters():
            checks.check_finite(name, parameter)
        return found

    def own_part(self, rank: int) -> OwnPart:
        """What of the model lies in a rank's vectors."""
        return self._own_part(rank, self._pieces_of(rank))

    def without_values(self) -> nn.Module:
        """The whole model, of no memory."""
        return without_values(self.model)

    def _own_part(self, rank: int, pieces: Mapping[str, Index]) -> OwnPart:
        shapes = {name: tuple(each.shape) for name, each in model_tensors.named(self.model)}
        lengths = {name: index[0].stop - index[0].start for name, index in pieces.items()}
        there = {name: index if lengths[name] else None for name, index in pieces.items()}
        return OwnPart(rank, there, shapes, ())

    def _pieces_of(self, rank: int) -> dict[str, Index]:
        named = self.model.named_parameters(remove_duplicate=False)
        return {name: (rows(len(each), rank, self.ranks),) for name, each in named}

    def _rows_of(self, rank: int, device: torch.device) -> tuple[nn.Module, dict[str, Index]]:
        """A model of rows without values; buffers, and what else it has, are whole."""
        module, pieces = without_values(self.model), self._pieces_of(rank)
        made: dict[int, Tensor] = {}

        def there(tensor: Tensor, shape: torch.Size) -> Tensor:
            if id(tensor) not in made:
                empty = torch.empty(shape, dtype=tensor.dtype, device=device)
                is_parameter = isinstance(tensor, nn.Parameter)
                made[id(tensor)] = (
                    nn.Parameter(empty, tensor.requires_grad) if is_parameter else empty
                )
            return made[id(tensor)]

        for name, each in [*module.named_parameters(remove_duplicate=False)]:
            _replace(module, name, there(each, each[pieces[name]].shape))
        for name, buffer in [*module.named_buffers(remove_duplicate=False)]:
            _replace(module, name, there(buffer, buffer.shape))
        return module, pieces


def _replace(module: nn.Module, name: str, tensor: Tensor) -> None:
    owner, _, attribute = name.rpartition(".")
    setattr(module.get_submodule(owner), attribute, tensor)
