"""How well one neuron tells a class from the others: Coates et al. 2013, table 2.

python examples/autoencoder/selectivity.py 4=NARROW.safetensors 8=WIDE.safetensors

A number is the network's `channels`.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from autoencoder import Autoencoder, autoencoder, responses
from disttrain import Split

OTHERS = 1
"""Distractors for each image of the class."""


def best_neuron(found: Tensor, wanted: Tensor) -> tuple[int, float]:
    """The neuron (its column) with the highest accuracy by a threshold on its response."""
    order = found.argsort(dim=0, descending=True)
    gained = torch.where(wanted[order], 1, -1).cumsum(dim=0)
    # With all below the threshold, those that are not wanted are right.
    correct = (~wanted).sum() + gained.max(dim=0).values.clamp(min=0)
    neuron = int(correct.argmax())
    return neuron, float(correct[neuron]) / len(wanted)


def diagnostic(labels: Tensor, class_number: int) -> Tensor:
    """Places of the images of a class, and of the first distractors, from all other classes."""
    own = (labels == class_number).nonzero()[:, 0]
    others = (labels != class_number).nonzero()[:, 0]
    return torch.cat([own, others[: OTHERS * len(own)]])


def trained(channels: int, file: Path) -> nn.Sequential:
    model = autoencoder(channels)
    model.load_state_dict(load_file(file))
    return model


def responses_to_tests(model: nn.Sequential, task: Autoencoder) -> tuple[Tensor, Tensor]:
    """Of all test images, and their labels."""
    data = task.dataset(Split.TEST)
    places = torch.split(torch.arange(len(data)), 250)
    with torch.no_grad():
        parts = [responses(model, data.__getitems__(some.tolist())[0]) for some in places]
    return torch.cat(parts), data.labels


def main(arguments: list[str]) -> None:
    """Print the table: an argument is CHANNELS=FILE, or train= or test=PARQUET."""
    given = dict(argument.split("=", 1) for argument in arguments)
    files = [given.pop(name, Autoencoder.SAMPLES[name]) for name in ("train", "test")]
    task = Autoencoder(*files)
    print("| class | channels | guessing | best untrained neuron | best neuron |")  # noqa: T201
    print("|---|---|---|---|---|")  # noqa: T201
    for channels, file in given.items():
        torch.manual_seed(0)
        untrained, labels = responses_to_tests(autoencoder(int(channels)), task)
        found, _ = responses_to_tests(trained(int(channels), Path(file)), task)
        for number in range(10):
            places = diagnostic(labels, number)
            wanted = labels[places] == number
            guess = float((~wanted).float().mean())
            row = [guess, *(best_neuron(each[places], wanted)[1] for each in (untrained, found))]
            figures = " | ".join(f"{each:.1%}" for each in row)
            print(f"| {number} | {channels} | {figures} |")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
