"""Windows of 11 frames around each frame, and the acoustic state that the frame belongs to."""

from collections.abc import Sequence

import torch
from recordings import Recording
from torch import Tensor
from torch.utils.data import Dataset

CONTEXT = 5
"""Frames on either side of the one to classify."""

WIDTH = 2 * CONTEXT + 1


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """One sample per frame: its window [11 x 40] and its state.

    All windows are views of one tensor of frames, so that nothing is kept 11 times.
    """

    def __init__(self, recordings: Sequence[Recording], states_per_digit: int) -> None:
        frames = torch.cat([lengthened(recording.energies) for recording in recordings])
        bands = frames.shape[1]
        self.windows = frames.as_strided((len(frames) - WIDTH + 1, WIDTH * bands), (bands, 1))
        self.starts = starts([len(recording.energies) for recording in recordings])
        self.states = torch.cat([states(recording, states_per_digit) for recording in recordings])
        self.frames = frames

    def normalise(self, mean: Tensor, deviation: Tensor) -> None:
        """Change the energies of each band in place, once."""
        self.frames.sub_(mean).div_(deviation)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.windows[self.starts[index]], self.states[index]

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        return self.windows[self.starts[indices]], self.states[indices]


def lengthened(energies: Tensor) -> Tensor:
    """The frames with the first and the last one repeated for the windows at the ends."""
    return torch.cat(
        [energies[:1].expand(CONTEXT, -1), energies, energies[-1:].expand(CONTEXT, -1)]
    )


def starts(lengths: Sequence[int]) -> Tensor:
    """Where the window of each frame begins among the lengthened frames of all recordings."""
    frames = torch.arange(sum(lengths))
    recording = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return frames + 2 * CONTEXT * recording


def states(recording: Recording, states_per_digit: int) -> Tensor:
    """The state of each frame: the digit's time, cut into equal parts."""
    length = len(recording.energies)
    part = torch.arange(length) * states_per_digit // length
    return recording.digit * states_per_digit + part
