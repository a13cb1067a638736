"""The model of examples/language at a size for tests, and a base for adapters of it."""

from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from language import Language

SIZES: dict[str, Any] = {"context": 16, "width": 16, "layers": 2, "heads": 2}


def a_base(folder: Path) -> Path:
    """A file of values that nobody has trained."""
    torch.manual_seed(1)
    file = folder / "base.safetensors"
    safetensors.torch.save_file(Language(**SIZES).model().state_dict(), file)
    return file
