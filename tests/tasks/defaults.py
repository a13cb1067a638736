"""Five small tasks of different kinds, for the default settings to be measured on."""

import sys
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, Subset

import disttrain
from disttrain import Split

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
for _folder in ("cifar10", "digits", "softmax_regression"):
    sys.path.insert(0, str(EXAMPLES / _folder))
from cifar10 import Cifar10  # noqa: E402  It lies in a folder that is no package.
from digits import Digits  # noqa: E402
from softmax_regression import Images, SoftmaxRegression  # noqa: E402

__all__ = ["Characters", "Digits", "FewPhotographs", "SoftmaxRegression", "Table"]

_LONGEST = 64
_WIDTH = 64


class FewPhotographs(Cifar10):
    """The first images of CIFAR-10: few enough that their evaluations are close together."""

    def __init__(
        self, train_samples: int = 4000, test_samples: int = 2000, **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self._samples = {Split.TRAIN: train_samples, Split.TEST: test_samples}

    def dataset(self, split: Split) -> Dataset[Any]:
        whole = super().dataset(split)
        few = min(self._samples[split], len(whole))  # type: ignore[arg-type]
        return Subset(whole, range(few))


class Characters(disttrain.Task):
    """The next character of English text; input and output embeddings are one parameter."""

    def __init__(self, train_samples: int = 1500, test_samples: int = 200) -> None:
        text = "".join(topics[name] for name in sorted(topics))
        codes = torch.tensor(list(text.encode("ascii", "replace")))
        windows = codes[: len(codes) // (_LONGEST + 1) * (_LONGEST + 1)].view(-1, _LONGEST + 1)
        drawn = torch.randperm(len(windows), generator=torch.Generator().manual_seed(3))
        self._windows = {
            Split.TRAIN: windows[drawn[test_samples:][:train_samples]],
            Split.TEST: windows[drawn[:test_samples]],
        }

    def model(self) -> nn.Module:
        return Transformer()

    def dataset(self, split: Split) -> Dataset[Any]:
        windows = self._windows[split]
        return Images(windows[:, :-1], windows[:, 1:])

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        scores = model(batch[0])
        return functional.cross_entropy(scores.flatten(0, 1), batch[1].flatten())

    def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        right = model(batch[0]).argmax(dim=2) == batch[1]
        return {"accuracy": right.float().mean(dim=1).sum()}


class Transformer(nn.Module):
    """Two layers with causal attention over 128 characters."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, _WIDTH)
        nn.init.normal_(self.embedding.weight, std=_WIDTH**-0.5)
        self.places = nn.Parameter(torch.randn(_LONGEST, _WIDTH) * _WIDTH**-0.5)
        layer = nn.TransformerEncoderLayer(
            _WIDTH, 4, 2 * _WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(_WIDTH)
        hidden = torch.ones(_LONGEST, _LONGEST, dtype=torch.bool).triu(1)
        self.register_buffer("hidden", hidden, persistent=False)

    def forward(self, codes: Tensor) -> Tensor:
        embedded = self.embedding(codes) + self.places
        found = self.norm(self.layers(embedded, mask=self.hidden))
        return functional.linear(found, self.embedding.weight)


class Table(disttrain.Task):
    """Ten classes of twenty numbers, every tenth label wrong; a network with BatchNorm."""

    def model(self) -> nn.Module:
        layers: list[nn.Module] = []
        for before in (20, 128):
            layers += [nn.Linear(before, 128), nn.BatchNorm1d(128), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(128, 10))

    def dataset(self, split: Split) -> Dataset[Any]:
        teacher = torch.Generator().manual_seed(5)
        first = torch.randn(20, 32, generator=teacher) * 2 / 20**0.5
        last = torch.randn(32, 10, generator=teacher)
        draw = torch.Generator().manual_seed(1 if split == Split.TRAIN else 2)
        values = torch.randn(4000 if split == Split.TRAIN else 10000, 20, generator=draw)
        labels = ((values @ first).tanh() @ last).argmax(dim=1)
        if split == Split.TRAIN:
            wrong = torch.arange(len(labels)) % 10 == 0
            labels = torch.where(wrong, (labels + 1) % 10, labels)
        return Images(values, labels)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return functional.cross_entropy(model(batch[0]), batch[1])

    def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        return {"accuracy": (model(batch[0]).argmax(dim=1) == batch[1]).sum()}
