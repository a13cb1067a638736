import math

import mel
import pytest
import torch
from torch import Tensor

RATE = 8000


def a_tone(hertz: float, *, seconds: float = 0.5, rate: int = RATE) -> Tensor:
    times = torch.arange(round(seconds * rate), dtype=torch.float64) / rate
    return torch.sin(2 * math.pi * hertz * times).float()


def centres(rate: int) -> Tensor:
    highest = mel.mel(torch.tensor(rate / 2))
    return mel.hertz(torch.linspace(0, float(highest), mel.BANDS + 2))[1:-1]


@pytest.mark.parametrize("rate", [8000, 16000])
@pytest.mark.parametrize("band", [4, 12, 20, 30, 38])
def test_a_tone_is_loudest_in_the_band_around_it(band: int, rate: int) -> None:
    energies = mel.log_mel(a_tone(float(centres(rate)[band]), rate=rate), rate)
    assert set(energies.argmax(dim=1).tolist()) == {band}


def test_frames_last_25_ms_and_follow_each_other_after_10() -> None:
    assert mel.log_mel(torch.zeros(200), RATE).shape == (1, 40)
    assert mel.log_mel(torch.zeros(279), RATE).shape == (1, 40)
    assert mel.log_mel(torch.zeros(280), RATE).shape == (2, 40)
    assert mel.log_mel(torch.zeros(RATE), RATE).shape == (98, 40)


def test_a_sound_shorter_than_a_frame_has_one() -> None:
    assert mel.log_mel(torch.ones(10), RATE).shape == (1, 40)


def test_silence_has_the_least_energy_and_no_infinity() -> None:
    silence = mel.log_mel(torch.zeros(400), RATE)
    assert torch.all(silence == math.log(mel.LEAST_ENERGY))


def test_power_sums_to_the_mean_square_under_the_window() -> None:
    """Parseval's theorem."""
    frames = torch.randn(5, 200, generator=torch.Generator().manual_seed(1))
    window = torch.hann_window(200, periodic=False).square()
    expected = (frames.square() * window).sum(dim=1) / window.sum()
    torch.testing.assert_close(mel.power_spectrum(frames).sum(dim=1), expected)


def test_twice_the_amplitude_is_four_times_the_energy() -> None:
    tone = 0.1 * a_tone(1000)
    louder = mel.log_mel(2 * tone, RATE).amax(dim=1) - mel.log_mel(tone, RATE).amax(dim=1)
    torch.testing.assert_close(louder, torch.full_like(louder, math.log(4)))


def test_neighbouring_bands_share_each_frequency_between_them() -> None:
    bank = mel.filterbank(RATE, 257)
    inner = (torch.linspace(0, RATE / 2, 257) > centres(RATE)[0]) & (
        torch.linspace(0, RATE / 2, 257) < centres(RATE)[-1]
    )
    torch.testing.assert_close(bank[inner].sum(dim=1), torch.ones(int(inner.sum())))
    assert bank.amax(dim=0).min() > 0.5


def test_mel_and_hertz_are_inverse() -> None:
    frequencies = torch.tensor([0.0, 440.0, 1000.0, 4000.0])
    torch.testing.assert_close(mel.hertz(mel.mel(frequencies)), frequencies)
    assert float(mel.mel(torch.tensor(1000.0))) == pytest.approx(1000, abs=0.1)
