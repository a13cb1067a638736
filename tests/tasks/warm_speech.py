"""The speech example, beginning with the parameters of an earlier run."""

from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import nn

from speech import Speech


class WarmSpeech(Speech):
    """`start` is a model.safetensors; None: the example's own initial weights."""

    def __init__(self, start: str | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._start = start

    def model(self) -> nn.Module:
        model = super().model()
        if self._start is not None:
            model.load_state_dict(load_file(Path(self._start)))
        return model
