"""Filters of the first stack, and what a class's best neuron responds to most, as a PNG.

python examples/autoencoder/draw.py CHANNELS runs/NAME/model.safetensors CLASS picture.png
"""

import sys
from pathlib import Path

import torch
from PIL import Image
from selectivity import best_neuron, diagnostic, responses_to_tests, trained
from torch import Tensor
from torch.nn import functional

from autoencoder import Autoencoder, first_filters, optimal_stimulus

COLUMNS, ROWS, SCALE = 16, 6, 4


def sheet(filters: Tensor) -> Tensor:
    """(3, height, width): pictures beside each other, each with its own contrast."""
    shown = torch.stack([visible(each) for each in filters[: COLUMNS * ROWS]])
    framed = functional.pad(shown, (1, 1, 1, 1), value=1.0)
    rows = [torch.cat(list(row), dim=2) for row in torch.split(framed, COLUMNS)]
    width = rows[0].shape[2]
    rows = [functional.pad(row, (0, width - row.shape[2]), value=1.0) for row in rows]
    return torch.cat(rows, dim=1)


def visible(picture: Tensor) -> Tensor:
    """0 becomes grey, and the strongest value black or white."""
    return 0.5 + 0.5 * picture / picture.abs().max().clamp(min=1e-12)


def written(picture: Tensor, file: Path) -> None:
    pixels = picture.clamp(0, 1).mul(255).byte()
    large = pixels.repeat_interleave(SCALE, 1).repeat_interleave(SCALE, 2)
    Image.fromarray(large.permute(1, 2, 0).numpy()).save(file, "PNG")


def main(channels: int, file: Path, class_number: int, picture: Path) -> None:
    model = trained(channels, file)
    found, labels = responses_to_tests(model, Autoencoder(channels=channels))
    places = diagnostic(labels, class_number)
    neuron, _ = best_neuron(found[places], labels[places] == class_number)
    filters = sheet(first_filters(model))
    stimulus = visible(optimal_stimulus(model, neuron))
    below = functional.pad(stimulus, (1, filters.shape[2] - 33, 1, 1), value=1.0)
    written(torch.cat([filters, below], dim=1), picture)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
