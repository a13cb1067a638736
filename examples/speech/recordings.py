"""Recordings of spoken digits in a parquet file: columns audio {bytes, path}, label, speaker."""

import io
import wave
from dataclasses import dataclass
from pathlib import Path

import mel
import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

TEST_TAKES = range(5)
"""The usual test set of these recordings: the first five takes of each digit and speaker."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One spoken digit."""

    digit: int
    speaker: str
    take: int
    """Which time the speaker said this digit, from 0: the end of the file's name, 7_theo_12.wav."""

    energies: Tensor
    """Log mel energies [frames, 40]."""


def read_recordings(path: Path) -> list[Recording]:
    """All recordings of a parquet file."""
    return [
        Recording(
            digit=row["label"],
            speaker=row["speaker"],
            take=int(Path(row["audio"]["path"]).stem.rpartition("_")[2]),
            energies=mel.log_mel(*decode(row["audio"]["bytes"])),
        )
        for row in pq.read_table(path).to_pylist()
    ]


def decode(encoded: bytes) -> tuple[Tensor, int]:
    """The samples of a WAV file, between -1 and 1, and their number per second.

    Raises ValueError for anything but 16-bit sound with one channel.
    """
    with wave.open(io.BytesIO(encoded)) as file:
        if (file.getnchannels(), file.getsampwidth()) != (1, 2):
            message = (
                "expected a WAV file of one channel and 16 bits, got "
                f"{file.getnchannels()} channels of {8 * file.getsampwidth()} bits"
            )
            raise ValueError(message)
        samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
        return torch.from_numpy(samples.astype(np.float32) / 2**15), file.getframerate()
