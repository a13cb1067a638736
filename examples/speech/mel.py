"""Log mel energies: what a listener hears of a short piece of sound, as 40 numbers."""

from functools import cache

import torch
from torch import Tensor

BANDS = 40
FRAME_SECONDS = 0.025
HOP_SECONDS = 0.010
LEAST_ENERGY = 1e-8
"""Floor of a band's energy, about -80 dB of a full-scale tone: silence has no logarithm."""


def log_mel(sound: Tensor, rate: int) -> Tensor:
    """The energies [frames, 40] of a sound of samples between -1 and 1, at `rate` per second.

    A sound shorter than one frame is lengthened with silence to one.
    """
    length, hop = round(FRAME_SECONDS * rate), round(HOP_SECONDS * rate)
    if len(sound) < length:
        sound = torch.nn.functional.pad(sound, (0, length - len(sound)))
    power = power_spectrum(sound.unfold(0, length, hop))
    return (power @ filterbank(rate, power.shape[1])).clamp_min(LEAST_ENERGY).log()


def power_spectrum(frames: Tensor) -> Tensor:
    """The power [frames, bins] from 0 to half the rate; per frame it sums to the mean square.

    The window is Hann's. Padding to at least twice the length makes the bins narrower than the
    narrowest band.
    """
    length = frames.shape[1]
    window = torch.hann_window(length, periodic=False)
    bins = 1 << (2 * length - 1).bit_length()
    spectrum = torch.fft.rfft(frames * window, n=bins)
    power: Tensor = spectrum.abs().square() / (bins * window.square().sum())
    power[:, 1:-1] *= 2  # Each stands for its mirror image too.
    return power


@cache
def filterbank(rate: int, bins: int) -> Tensor:
    """The triangles [bins, 40], evenly spaced on the mel scale from 0 to half the rate."""
    edges = hertz(torch.linspace(0, float(mel(torch.tensor(rate / 2))), BANDS + 2))
    frequencies = torch.linspace(0, rate / 2, bins)[:, None]
    rising = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp_min(0)


def mel(frequency: Tensor) -> Tensor:
    """Hertz to mel (O'Shaughnessy)."""
    return 2595 * torch.log10(1 + frequency / 700)


def hertz(mels: Tensor) -> Tensor:
    """Mel to hertz."""
    return 700 * (torch.pow(10, mels / 2595) - 1)
