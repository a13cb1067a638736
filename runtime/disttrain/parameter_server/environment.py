"""The environment of a recorded run: what it depends on beside its manifest, for its replay."""

from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import TypeAdapter, ValidationError

from disttrain.launch import atomic_file

FILE = "recording.json"
"""In the run's ledger folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """A replay under others would not come to the same bits."""

    chunk_bytes: int
    """How vectors are cut: chunks of one update may be applied apart."""
    torch: str
    """Version of PyTorch."""
    cpu: str
    """Which of PyTorch's kernels: how many numbers are added at a time."""


_ENVIRONMENT = TypeAdapter(Environment)


def here(chunk_bytes: int) -> Environment:
    return Environment(
        chunk_bytes=chunk_bytes,
        torch=str(torch.__version__),
        cpu=torch.backends.cpu.get_cpu_capability(),
    )


def write(folder: Path, found: Environment) -> None:
    """Note them in a run's ledger folder. Raises OSError."""
    atomic_file.replace(folder / FILE, _ENVIRONMENT.dump_json(found, indent=1))


def read(folder: Path) -> Environment | None:
    """What was noted; None if nothing was, or nothing that can be understood."""
    try:
        return _ENVIRONMENT.validate_json((folder / FILE).read_bytes(), strict=True)
    except (OSError, ValidationError):
        return None
