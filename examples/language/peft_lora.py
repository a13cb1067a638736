"""The same adapter as `lora.py`, made by PEFT: `pip install peft`, which brings transformers."""

import peft
import safetensors.torch
from lora import Lora
from torch import nn

from language import Language


class PeftLora(Lora):
    """`base` and `rank` as for `Lora`; `alpha` is PEFT's, whose scale is alpha / rank."""

    def __init__(self, base: str, *, alpha: int = 8, **arguments: object) -> None:
        super().__init__(base, **arguments)  # type: ignore[arg-type]  # Lora names what is wrong.
        self.alpha = alpha

    def model(self) -> nn.Module:
        """PEFT freezes all but the adapter; it goes by the names of layers, of any model."""
        model = Language.model(self)
        model.load_state_dict(safetensors.torch.load_file(self.base))
        layers = ["attended", "joined", "layers.0", "layers.2"]
        config = peft.LoraConfig(r=self.rank, lora_alpha=self.alpha, target_modules=layers)
        adapted: nn.Module = peft.get_peft_model(model, config)
        return adapted
