"""What the partitions of a replica compute in a call of the model, beside its whole output."""

import json
from dataclasses import asdict
from typing import NamedTuple

import torch
from torch import Tensor

from disttrain.groups.steps import Collective
from disttrain.parallel.losses import ClassLoss
from disttrain.parallel.objective import Objective
from disttrain.parallel.reconstruction import Reconstruction
from disttrain.replica import partition_values

_OBJECTIVES: dict[str, type[Objective]] = {
    each.__name__: each for each in (ClassLoss, Reconstruction)
}


class Losses(NamedTuple):
    """Losses that all partitions find, of samples and labels that the first one has."""

    objective: Objective
    labels: Tensor | None = None

    @property
    def description(self) -> str:
        """What the others have to know, but for the labels."""
        words = asdict(self.objective)
        has_labels = self.labels is not None
        return json.dumps([type(self.objective).__name__, words, has_labels])

    def tell(self, group: Collective) -> None:
        """Let the others know. Raises GroupLost."""
        partition_values.told(self.description, group)
        if self.labels is not None:
            group.broadcast(self.labels.to("cpu", torch.int64))


def told(nbytes: int, samples: int, group: Collective, device: torch.device) -> Losses:
    """What the first partition tells. `nbytes`: of the description. Raises GroupLost."""
    name, words, has_labels = json.loads(partition_values.told("", group, nbytes))
    labels = None
    if has_labels:
        labels = torch.empty(samples, dtype=torch.int64)
        group.broadcast(labels)
    return Losses(_OBJECTIVES[name](**words), None if labels is None else labels.to(device))
