"""DistBelief's speech model (section 5) on spoken digits: which acoustic state is this frame in?"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import torch
from mel import BANDS
from recordings import TEST_TAKES, Recording, read_recordings
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset
from windows import WIDTH, Windows

import disttrain
from disttrain import Batch, Split

HERE = Path(__file__).parent
DIGITS = 10


class Speech(disttrain.Task):
    """`data` is relative to this file.

    Test recordings are those of `test_speakers`; if there are none, the usual test takes, 0 to 4.
    """

    def __init__(
        self,
        data: str = "../data/spoken-digits-sample.parquet",
        *,
        layers: int = 4,
        width: int = 2560,
        states_per_digit: int = 5,
        test_speakers: Sequence[str] = (),
    ) -> None:
        self.path = HERE / data
        self.layers, self.width = layers, width
        self.states_per_digit = states_per_digit
        self.test_speakers = set(test_speakers)

    def model(self) -> nn.Module:
        return sigmoid_network(
            [WIDTH * BANDS, *[self.width] * self.layers, DIGITS * self.states_per_digit]
        )

    def dataset(self, split: Split) -> Dataset[tuple[Tensor, Tensor]]:
        return self.windows[split]

    @cached_property
    def windows(self) -> dict[str, Windows]:
        """Both splits, normalised by mean and deviation of the training frames."""
        recordings = read_recordings(self.path)
        speakers = {recording.speaker for recording in recordings}
        if not self.test_speakers <= speakers:
            wanted = sorted(self.test_speakers)
            message = f"test_speakers: {self.path} has {sorted(speakers)}, got {wanted}"
            raise ValueError(message)
        test = [recording for recording in recordings if self.is_test(recording)]
        train = [recording for recording in recordings if not self.is_test(recording)]
        windows = {
            "train": Windows(train, self.states_per_digit),
            "test": Windows(test, self.states_per_digit),
        }
        deviation, mean = torch.std_mean(windows["train"].frames, dim=0)
        for split in windows.values():
            split.normalise(mean, deviation)
        return windows

    def is_test(self, recording: Recording) -> bool:
        if self.test_speakers:
            return recording.speaker in self.test_speakers
        return recording.take in TEST_TAKES

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        windows, states = batch
        return functional.cross_entropy(model(windows), states)

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        windows, states = batch
        guesses = model(windows).argmax(dim=1)
        digits, guessed = states // self.states_per_digit, guesses // self.states_per_digit
        return {"accuracy": (guesses == states).sum(), "digit": (guessed == digits).sum()}


def sigmoid_network(sizes: list[int]) -> nn.Sequential:
    """Fully connected layers with sigmoids between them, initialised so that deep ones train.

    A sigmoid has slope 1/4 and mean 1/2. Weights four times as large as Glorot's make up for the
    first, a bias of minus half the sum of the weights for the second: signals keep their strength.
    """
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.Sigmoid()]
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    for number, layer in enumerate(linear):
        is_hidden = 0 < number < len(linear) - 1
        nn.init.xavier_normal_(layer.weight, gain=4 if is_hidden else 1)
        with torch.no_grad():
            layer.bias.copy_(-0.5 * layer.weight.sum(dim=1) * (number > 0))
    return nn.Sequential(*layers[:-1])
