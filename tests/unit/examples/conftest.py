import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[3] / "examples"

# A user's modules lie in the manifest's folder, not in a package; the tests import them from there.
for _name in (
    "digits",
    "cifar10",
    "softmax_regression",
    "speech",
    "language",
    "image-local",
    "autoencoder",
):
    sys.path.append(str(EXAMPLES / _name))


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    """On a busy machine threads that wait for each other make small steps far slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
