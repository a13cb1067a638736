"""Random images for a model that can be divided, and what such tasks can do wrong."""

import json
import math
import os
import signal
import time
import weakref
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

import disttrain
from disttrain import Loss, Split
from disttrain.parallel import LocallyConnected2d

SAMPLES, CLASSES = 96, 6


def wait_for(file: Path, at_most_seconds: float = math.inf) -> None:
    end = time.monotonic() + at_most_seconds
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.01)


class DividedImages(disttrain.Task):
    """`step_seconds` makes steps last, so that a test can act in the middle of a run."""

    def __init__(
        self, *, normalised: bool = True, dropout: float = 0.0, step_seconds: float = 0.0
    ) -> None:
        self.normalised, self.dropout = normalised, dropout
        self.step_seconds = step_seconds
        # Else a GPU multiplies with 10 bits, and the order of sums is seen.
        torch.backends.cudnn.allow_tf32 = False

    def model(self) -> nn.Module:
        return nn.Sequential(
            OrderedDict(
                filters=nn.Conv2d(2, 5, 3, padding=1),
                norm=nn.BatchNorm2d(5) if self.normalised else nn.Identity(),
                active=nn.ReLU(),
                pool=nn.MaxPool2d(2),
                dropout=nn.Dropout(self.dropout),
                flat=nn.Flatten(),
                hidden=nn.Linear(5 * 5 * 4, 13),
                tanh=nn.Tanh(),
                head=nn.Linear(13, CLASSES),
            )
        )

    def dataset(self, split: Split) -> Dataset[Any]:
        drawn = torch.Generator().manual_seed(1 if split == Split.TRAIN else 2)
        images = torch.randn(SAMPLES, 2, 10, 9, generator=drawn)
        labels = torch.randint(0, CLASSES, (SAMPLES,), generator=drawn)
        return TensorDataset(images + 0.3 * labels[:, None, None, None], labels)

    def loss(self, model: nn.Module, batch: Any) -> Tensor | Loss:
        images, labels = batch
        if torch.is_grad_enabled():
            time.sleep(self.step_seconds)
        return functional.cross_entropy(model(images), labels)


class LocalFilters(DividedImages):
    """Each place has filters of its own."""

    def model(self) -> nn.Module:
        made = super().model()
        assert isinstance(made, nn.Sequential)
        local = LocallyConnected2d(5, 5, 3, input_size=(10, 9), padding=1)
        layers = [*made.named_children()]
        return nn.Sequential(OrderedDict([*layers[:3], ("local", local), *layers[3:]]))


class Lasting(nn.Module):
    """In training it takes a while."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            time.sleep(self._seconds)
        return x


class Read(TensorDataset):
    """Each process has a file of a byte for each sample that it has read."""

    def __init__(self, tensors: tuple[Tensor, ...], folder: Path) -> None:
        super().__init__(*tensors)
        self._folder = folder

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        with (self._folder / f"{os.getpid()}.read").open("ab") as file:
            file.write(b".")
        return tuple(tensor[index] for tensor in self.tensors)


class Cut(DividedImages):
    """Its steps last within a layer. It notes which processes forget the model that they made.

    And which ask for data.

    When there is a file `struck`, processes make their model no sooner than there is one `back`.
    """

    def __init__(self, *, folder: str, layer_seconds: float = 0.0) -> None:
        super().__init__(normalised=False)
        self._folder, self._seconds = Path(folder), layer_seconds

    def model(self) -> nn.Module:
        if (self._folder / "struck").exists():
            wait_for(self._folder / "back")
        made = super().model()
        assert isinstance(made, nn.Sequential)
        made.add_module("lasting", Lasting(self._seconds))
        note = self._folder / f"{os.getpid()}.forgotten"
        weakref.finalize(made, note.touch).atexit = False
        return made

    def dataset(self, split: Split) -> Dataset[Any]:
        (self._folder / f"{os.getpid()}.{split}").touch()
        made = super().dataset(split)
        assert isinstance(made, TensorDataset)
        return Read(made.tensors, self._folder) if split == Split.TRAIN else made


class Drawing(DividedImages):
    """A model that can only be made with its values."""

    def model(self) -> nn.Module:
        made = super().model()
        assert made.get_parameter("head.bias").sum().item() != 0.0
        return made


class DyingOnce(DividedImages):
    """Ends the first process that asks for its data."""

    def __init__(self, *, folder: str) -> None:
        super().__init__()
        self._died = Path(folder) / "died"

    def dataset(self, split: Split) -> Dataset[Any]:
        if not self._died.exists():
            self._died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().dataset(split)


class Counted(DividedImages):
    """Every other sample does not count."""

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        images, labels = batch
        losses = functional.cross_entropy(model(images), labels, reduction="none")
        counts = (labels % 2 == 0).float()
        return Loss(sum=(losses * counts).sum(), count=counts.sum())


class InRounds(DividedImages):
    """Each process that computes the loss notes which samples each of its steps has.

    They take their first step when all replicas are there. After `rounds` steps the loss is
    constant, so that it makes no difference how many more steps each of them takes.
    """

    def __init__(self, *, folder: str, replicas: int, rounds: int) -> None:
        super().__init__(normalised=False)
        self._folder, self._replicas, self._rounds = Path(folder), replicas, rounds
        self._steps = 0

    def dataset(self, split: Split) -> Dataset[Any]:
        return TensorDataset(*super().dataset(split)[:], torch.arange(SAMPLES))

    def loss(self, model: nn.Module, batch: Any) -> Tensor | Loss:
        images, labels, numbers = batch
        if not torch.is_grad_enabled():
            return super().loss(model, (images, labels))
        with (self._folder / f"{os.getpid()}.steps").open("a") as file:
            file.write(f"{json.dumps(numbers.tolist())}\n")
        while len([*self._folder.glob("*.steps")]) < self._replicas:
            time.sleep(0.01)
        self._steps += 1
        found: Tensor = functional.cross_entropy(model(images), labels)
        return found if self._steps <= self._rounds else 0.0 * found


class Decaying(DividedImages):
    """Calls the model twice, and looks at its parameters and at one of its layers."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor | Loss:
        images, labels = batch
        assert isinstance(model, nn.Sequential)
        squares = torch.stack([each.square().sum() for each in model.parameters()]).sum()
        other = model(images.flip(-1)).square().mean()
        inner = model[:2](images).mean()
        found: Tensor = functional.cross_entropy(model(images), labels)
        whole: Tensor = found + 1e-2 * squares + 0.1 * other + 0.1 * inner
        return whole


class Penalised(DividedImages):
    """Calls the model, and adds a penalty on a layer's parameters."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor | Loss:
        images, labels = batch
        penalty = model.get_parameter("hidden.weight").square().sum()
        return functional.cross_entropy(model(images), labels) + 0.01 * penalty


class Bypassing(DividedImages):
    """Computes with a layer's parameters, and never calls the model."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor | Loss:
        images, labels = batch
        hidden = model.get_submodule("hidden")
        assert isinstance(hidden, nn.Linear)
        return functional.cross_entropy(images.flatten(1)[:, :100] @ hidden.weight.T, labels)


class Measured(DividedImages):
    """Calls the model several times for its measures. Images of the test are not those of training.

    With `folder` the second batch of the first evaluation of each process leaves its process id in
    the file `measuring` there, and waits for the file `hurry` between two calls of the model. Steps
    of training take their time before, and from then on wait for the file `gate`.
    """

    def __init__(self, *, dropout: float = 0.0, folder: str | None = None) -> None:
        super().__init__(dropout=dropout)
        self.folder = None if folder is None else Path(folder)
        self.batches = 0

    def loss(self, model: nn.Module, batch: Any) -> Tensor | Loss:
        if self.folder is not None and torch.is_grad_enabled():
            is_measured = (self.folder / "measuring").exists()
            wait_for(self.folder / "gate", math.inf if is_measured else 0.2)
        return super().loss(model, batch)

    def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        images, labels = batch
        # The first one is tried before the training.
        self.batches += 1
        right = (model(images).argmax(1) == labels).sum()
        if self.folder is not None and self.batches == 3:
            written = self.folder / f"measuring-{os.getpid()}"
            written.write_text(str(os.getpid()))
            written.replace(self.folder / "measuring")
            wait_for(self.folder / "hurry")
        return {"accuracy": right, "mirrored": model(images.flip(-1)).square().sum()}


class Growing(DividedImages):
    """Its samples become larger."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor | Loss:
        images, labels = batch
        if not torch.is_grad_enabled():
            return super().loss(model, batch)
        found: Tensor = functional.cross_entropy(model(functional.pad(images, (1, 1))), labels)
        return found


class Elsewhere(DividedImages):
    """Its last layer is on a GPU."""

    def model(self) -> nn.Module:
        made = super().model()
        assert isinstance(made, nn.Sequential)
        made.add_module("head", nn.Linear(13, CLASSES, device="cuda"))
        return made


class Unordered(DividedImages):
    """A model that says nothing of the order of its layers."""

    def model(self) -> nn.Module:
        made = super().model()

        class Around(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = made

            def forward(self, x: Tensor) -> Any:
                return self.inner(x)

        return Around()
