"""Which layers of a divided model train, and which do as in evaluation, in all its partitions."""

from collections.abc import Mapping
from typing import Final

from torch import nn

from disttrain.parallel.layers.on_one import OnOne
from disttrain.parallel.layers.partitioned import PartitionedLayer

MOST: Final = 63
"""Layers that a word has bits for."""

Layers = Mapping[str, PartitionedLayer]
"""By the name that they have in the whole model, in their order."""


def otherwise(layers: Layers, whole: nn.Module) -> int:
    """Those that have another mode than the whole model: 1 for the first one, 2 for the second.

    Raises ValueError for what cannot be told so.
    """
    modules, found = dict(whole.named_modules(remove_duplicate=False)), 0
    for place, (name, layer) in enumerate(layers.items()):
        _check_inside(name, layer, modules[name])
        if modules[name].training == whole.training:
            continue
        if place >= MOST:
            message = (
                f"of a divided model's layers, the first {MOST} may have another mode "
                f"than the model, and {name} comes later; call train() or eval() of the model"
            )
            raise ValueError(message)
        found |= 1 << place
    return found


def take(layers: Layers, *, trains: bool, otherwise: int) -> None:
    """`trains`: the whole model."""
    for place, layer in enumerate(layers.values()):
        layer.train(trains != bool(otherwise >> place & 1))


def take_inside(layers: Layers, whole: nn.Module) -> None:
    """What is in a layer that lies whole in the first partition has modes of its own."""
    for name, layer in layers.items():
        if isinstance(layer, OnOne) and layer.place == 0:
            for inner, module in whole.get_submodule(name).named_modules():
                layer.called.get_submodule(inner).training = module.training


def _check_inside(name: str, layer: PartitionedLayer, module: nn.Module) -> None:
    if not isinstance(layer, OnOne) or layer.place == 0:
        return
    for inner, each in module.named_modules():
        if each.training != module.training:
            message = (
                f"{name} lies whole on partition {layer.place}, and its {inner} has another mode "
                f"than it has; call train() or eval() of {name}, or set "
                f"spec.replicas.wholeOn.{name} to 0"
            )
            raise ValueError(message)
