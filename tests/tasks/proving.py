"""Small models whose training can be repeated by a plain PyTorch loop, bit for bit."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

import disttrain
from disttrain import Batch, Split

FEATURES = 12
CLASSES = 5
WIDTH = 16


class Plain(nn.Sequential):
    """Odd sizes, so that no boundary of a shard or a chunk falls together with a tensor's."""

    def __init__(self) -> None:
        super().__init__(
            nn.Linear(FEATURES, 37), nn.Tanh(), nn.Linear(37, 23), nn.Tanh(), nn.Linear(23, CLASSES)
        )


class Everything(nn.Module):
    """Frozen and tied parameters, running statistics with their counter, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(FEATURES, WIDTH).requires_grad_(requires_grad=False)
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.dropout = nn.Dropout(0.2)
        self.outer = nn.Linear(WIDTH, WIDTH)
        self.outer.weight = self.inner.weight
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        values = torch.tanh(self.inner(self.frozen(values)))
        values = self.dropout(self.norm(values))
        return self.head(torch.tanh(self.outer(values)))  # type: ignore[no-any-return]


MODELS: dict[str, type[nn.Module]] = {"plain": Plain, "everything": Everything}


class Proving(disttrain.Task):
    """Classes that a random linear map decides."""

    def __init__(self, model: str = "plain", samples: int = 800, *, groups: bool = False) -> None:
        self._model = model
        self._has_groups = groups
        self._samples = samples

    def model(self) -> nn.Module:
        return MODELS[self._model]()

    def dataset(self, split: Split) -> Dataset[tuple[Tensor, ...]]:
        draw = torch.Generator().manual_seed(7)
        answer = torch.randn(FEATURES, CLASSES, generator=draw)
        count = self._samples if split == Split.TRAIN else 120
        draw.manual_seed(8 if split == Split.TRAIN else 9)
        values = torch.randn(count, FEATURES, generator=draw) * 2 + 0.5
        return TensorDataset(values, (values @ answer).argmax(1))

    def parameter_groups(self, model: nn.Module) -> list[disttrain.ParameterGroup]:
        if not self._has_groups:
            return []
        biases = [name for name, parameter in model.named_parameters() if parameter.ndim == 1]
        first = next(iter(model.parameters()))
        return [
            disttrain.ParameterGroup(parameters=biases, weight_decay=0.0),
            disttrain.ParameterGroup(parameters=[first], learning_rate=0.25, weight_decay=3.0),
        ]

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        values, labels = batch
        return functional.cross_entropy(model(values), labels)

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        values, labels = batch
        return {"accuracy": (model(values).argmax(1) == labels).sum()}
