"""The CIFAR-10 example with a test set small enough to be measured every few seconds."""

import sys
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset, Subset

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES / "cifar10"))
from cifar10 import Cifar10  # noqa: E402  It lies in a folder that is no package.
from disttrain import Split  # noqa: E402  As above.


class Photographs(Cifar10):
    """The first `test_samples` test images; paths may be absolute."""

    def __init__(self, test_samples: int = 2000, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.test_samples = test_samples

    def dataset(self, split: Split) -> Dataset[Any]:
        whole = super().dataset(split)
        if split == Split.TRAIN:
            return whole
        return Subset(whole, range(min(self.test_samples, len(whole))))  # type: ignore[arg-type]
