"""An ordinary PyTorch training loop on the digits that joins a running job of examples/digits.

Without DistTrain the three marked lines are

    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    optimizer.step()
    (nothing)
"""

import argparse
import sys
from math import nan
from pathlib import Path

from torch.nn import functional
from torch.utils.data import DataLoader

import disttrain
from disttrain import Split

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "digits"))

from digits import Digits


def train(run: Path, epochs: int, width: int, hidden: int) -> float:
    """Return the mean loss of the last whole epoch; nan if the job ended before there was one."""
    task = Digits(width, hidden)
    model = task.model()
    images_and_labels = task.dataset(Split.TRAIN)
    loader = DataLoader(images_and_labels, 32, shuffle=True, collate_fn=task.collate)

    mean = nan
    try:
        with disttrain.DownpourOptimizer(model, run) as optimizer:  # 1: joins the job
            for _ in range(epochs):
                losses = []
                for images, labels in loader:
                    optimizer.zero_grad()
                    loss = functional.cross_entropy(model(images), labels)
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()  # 2: pushes the gradients and takes what was fetched
                    losses.append(loss.item())
                mean = sum(losses) / len(losses)
    except disttrain.JobEnded as ended:  # 3: else `with` leaves it when every push was answered
        print(ended)  # noqa: T201

    return mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="output folder of a running job of examples/digits")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=64)
    given = parser.parse_args()
    print(f"loss {train(given.run, given.epochs, given.width, given.hidden):.4f}")  # noqa: T201


if __name__ == "__main__":
    main()
