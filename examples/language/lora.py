"""A trained language model that learns another text by small matrices beside its own: LoRA.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, section 4.1.
"""

import math

import safetensors.torch
import torch
from torch import Tensor, nn

from language import HERE, Language


class Lora(Language):
    """`base` is a model that `job.yaml` has exported, relative to this file.

    Its parameters are frozen; beside each linear layer of a block two matrices of `rank` are
    trained. With `spec.task.frozen: own` these alone travel and are exported.
    """

    def __init__(self, base: str, *, rank: int = 4, **arguments: object) -> None:
        super().__init__(**arguments)  # type: ignore[arg-type]  # Language names what is wrong.
        self.base, self.rank = HERE / base, rank

    def model(self) -> nn.Module:
        model = super().model()
        model.load_state_dict(safetensors.torch.load_file(self.base))
        model.requires_grad_(requires_grad=False)
        for name, layer in list(model.named_modules()):
            if isinstance(layer, nn.Linear) and name.startswith("blocks."):
                parent, _, attribute = name.rpartition(".")
                setattr(model.get_submodule(parent), attribute, Adapted(layer, self.rank))
        return model


class Adapted(nn.Module):
    """A linear layer, plus a product of two narrow matrices, which is 0 at first."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer
        self.down = nn.Parameter(torch.empty(rank, layer.in_features))
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, given: Tensor) -> Tensor:
        """As the layer, with what the adapter has learned."""
        learned: Tensor = self.layer(given) + given @ self.down.T @ self.up.T
        return learned
