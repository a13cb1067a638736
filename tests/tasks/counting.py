"""A model that counts: element i of its only parameter is how often sample i was applied.

With plain SGD and rate 1 a step adds exactly 1 to the elements of its samples, and to the first and
last elements of the model, which lie on the first and last shard: a lost and a doubled update show
in the trained parameters, whatever the order.
"""

import ctypes
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, IterableDataset

import disttrain
from disttrain import Batch, InputPipeline, Split

BLOCK = 64
STEPS_BEFORE_THE_GATE = 40
BASE = 50_000
"""Frozen elements of `CountingOnABase`."""
FIRST_TO_HANG = 100
"""Sample from which on a task that hangs does."""
SOURCES = (0, 300, 7, 0, 512, 1, 204)
"""Samples of each source that `Streaming` trains on."""


class Counts(nn.Module):
    """The counter between two blocks whose every element counts the updates of its shard."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.first_updates = nn.Parameter(torch.zeros(BLOCK))
        self.counts = nn.Parameter(torch.zeros(samples))
        self.last_updates = nn.Parameter(torch.zeros(BLOCK))

    def forward(self, batch: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """The sum and the mean of the counts of a batch, or of all, and all updates."""
        counts = self.counts if batch is None else self.counts[batch]
        updates = self.first_updates.sum() + self.last_updates.sum()
        return counts.sum(), counts.mean(), updates


class Numbers(Dataset[int]):
    """Sample i is the number i."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        return index


class Counting(disttrain.Task):
    """`step_seconds` makes steps last, so that a test can act in the middle of an epoch.

    `measure_seconds` does the same for each batch of an evaluation. With a `gate` no process does
    more than STEPS_BEFORE_THE_GATE before that file is there: whoever is killed or stopped then
    has its next incarnation while there is work left, however fast the machine is. Once the file
    `hurry` is there, steps take no time.
    """

    def __init__(
        self,
        samples: int = 1024,
        step_seconds: float = 0.0,
        nan_from_sample: int | None = None,
        measure_seconds: float = 0.0,
        gate: str | None = None,
        hurry: str | None = None,
    ) -> None:
        self.samples = samples
        self._gate = None if gate is None else Path(gate)
        self._hurry = None if hurry is None else Path(hurry)
        self._steps = 0
        self.step_seconds = step_seconds
        self.measure_seconds = measure_seconds
        self.nan_from_sample = nan_from_sample

    def model(self) -> nn.Module:
        return Counts(self.samples)

    def dataset(self, split: Split) -> Dataset[int]:
        return Numbers(self.samples if split == Split.TRAIN else 32)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(model, Counts)
        if torch.is_grad_enabled():
            self._step()
        counts, _, updates = model(batch)
        total: Tensor = -counts - updates
        if self.nan_from_sample is not None and bool((batch >= self.nan_from_sample).any()):
            # The square root of zero has no finite gradient, while the loss stays a number.
            total = total + (0.0 * updates).sqrt()
        return total

    def _step(self) -> None:
        self._steps += 1
        self._take_time()
        while self._gate and self._steps > STEPS_BEFORE_THE_GATE and not self._gate.exists():
            time.sleep(0.01)

    def _take_time(self) -> None:
        if self._hurry is None:
            time.sleep(self.step_seconds)
            return
        end = time.monotonic() + self.step_seconds
        while not self._hurry.exists() and time.monotonic() < end:
            time.sleep(0.05)

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        assert isinstance(model, Counts)
        time.sleep(self.measure_seconds)
        mean: Tensor = model()[1]
        counted: Tensor = mean.detach() * len(batch)
        return {"counted": counted}


class Labelled(Counting):
    """Each sample has a byte beside its number, of the file `labels` beside this module."""

    def dataset(self, split: Split) -> Dataset[Any]:
        file = Path(__file__).with_name("labels")
        labels = file.read_bytes() if file.exists() else bytes(self.samples)
        return list(enumerate(labels[: self.samples if split == Split.TRAIN else 32]))  # type: ignore[return-value]

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return super().loss(model, batch[0])


class CountingInParts(Counting):
    """The same for a model that is divided: two outputs count each sample."""

    def model(self) -> nn.Module:
        counts = nn.Linear(self.samples, 2, bias=False)
        nn.init.zeros_(counts.weight)
        return nn.Sequential(OrderedDict(counts=counts))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        if torch.is_grad_enabled():
            self._step()
        counted: Tensor = model(functional.one_hot(batch, self.samples).float()).sum()
        return -counted

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"counted": -self.loss(model, batch)}


class CountingOnABase(Counting):
    """The same beside frozen parameters, as an adapter on a base that is not trained."""

    def model(self) -> nn.Module:
        counts = super().model()
        base = nn.Parameter(torch.ones(BASE), requires_grad=False)
        counts.register_parameter("base", base)
        return counts


class FailsLate(Counting):
    """Has a mistake that shows after some steps."""

    def _step(self) -> None:
        super()._step()
        if self._steps > STEPS_BEFORE_THE_GATE:
            message = "a mistake that shows late"
            raise ValueError(message)


class FailsLateInParts(FailsLate, CountingInParts):
    """The same in all partitions of a replica at once."""


class Moody(Counting):
    """Reaches 1, but misses it the first time that it is measured as a file.

    `marker` is a file that says that this has happened.
    """

    def __init__(self, marker: str) -> None:
        super().__init__(step_seconds=0.005)
        self._marker = Path(marker)
        self._trained: nn.Module | None = None

    def model(self) -> nn.Module:
        made = super().model()
        self._trained = self._trained or made
        return made

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        reached = model is self._trained or self._marker.exists()
        if not reached:
            self._marker.touch()
        return {"reached": torch.tensor(float(reached) * len(batch))}


class Stuck(Numbers):
    """Most of its samples lie on a disk that does not answer the first who asks."""

    def __init__(self, samples: int, marker: Path) -> None:
        super().__init__(samples)
        self._marker = marker

    def __getitem__(self, index: int) -> int:
        if index >= FIRST_TO_HANG:
            hang_once(self._marker)
        return index


class Hanging(Counting):
    """Hangs for ever at one place, in one of its processes, once.

    "loss", "sample" or "worker"; "lock" is a loss in native code that keeps the interpreter's lock.
    """

    def __init__(self, place: str, marker: str, step_seconds: float = 0.0) -> None:
        super().__init__(step_seconds=step_seconds)
        self._place, self._marker = place, Path(marker)

    def input_pipeline(self) -> InputPipeline:
        return InputPipeline(workers=1 if self._place == "worker" else 0)

    def dataset(self, split: Split) -> Dataset[int]:
        if self._place in {"sample", "worker"} and split == Split.TRAIN:
            return Stuck(self.samples, self._marker)
        return super().dataset(split)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        if self._place in {"loss", "lock"} and bool((batch >= FIRST_TO_HANG).any()):
            hang_once(self._marker, keeping_the_lock=self._place == "lock")
        return super().loss(model, batch)


def hang_once(marker: Path, *, keeping_the_lock: bool = False) -> None:
    """For ever, for whoever comes here first; the marker says which process that is."""
    try:
        with marker.open("x") as said:
            said.write(str(os.getpid()))
    except FileExistsError:
        return
    if keeping_the_lock:
        ctypes.PyDLL(None).pause()
    threading.Event().wait()


class NumberedSources(disttrain.Sources):
    """Sample i of all sources together is the number i.

    `kept`: how many of its samples each source still has when it is read.
    """

    def __init__(self, counts: Sequence[int], kept: Sequence[int] | None = None) -> None:
        self.counts, self.kept = counts, kept or counts
        self.begins = [0, *accumulate(counts)]
        self.openings = 0

    def names(self) -> Sequence[str]:
        return [f"part-{number}" for number in range(len(self.counts))]

    def count(self, source: int) -> int:
        return self.counts[source]

    def read(self, source: int, first: int) -> Iterator[int]:
        self.openings += 1
        begin = self.begins[source]
        yield from range(begin + first, begin + self.kept[source])


class Streaming(Counting):
    """Reads sources in order, by `workers`. One that is `short` has lost its last sample."""

    def __init__(self, workers: int = 0, short: int | None = None, **arguments: Any) -> None:
        super().__init__(samples=sum(SOURCES), **arguments)
        self._workers = workers
        self._kept = [count - (number == short) for number, count in enumerate(SOURCES)]

    def dataset(self, split: Split) -> Dataset[int]:
        is_train = split == Split.TRAIN
        return NumberedSources(SOURCES, self._kept) if is_train else NumberedSources((20, 12))

    def input_pipeline(self) -> InputPipeline:
        return InputPipeline(workers=self._workers)


class OneWay(IterableDataset[int]):
    """A stream that begins at its beginning."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(64))


class OneWaySources(NumberedSources):
    """Begins each source at its beginning, wherever it is asked to."""

    def read(self, source: int, first: int) -> Iterator[int]:
        del first
        return super().read(source, 0)


class StreamingOneWay(Counting):
    """Its data cannot be begun with in the middle."""

    def __init__(self, kind: str) -> None:
        super().__init__(samples=64)
        self._kind = kind

    def dataset(self, split: Split) -> Dataset[int]:
        if split == Split.TEST:
            return Numbers(32)
        return OneWay() if self._kind == "plain" else OneWaySources((0, 44, 20))


FORMATS: dict[str, type[Any]] = {
    "tar": disttrain.TarSamples,
    "parquet": disttrain.ParquetRows,
    "text": disttrain.TextLines,
}


class CountingFiles(Counting):
    """Sample i is the number i, which its `place` has in files of a format."""

    def __init__(self, format_: str, place: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._format, self._place = format_, place

    def dataset(self, split: Split) -> Dataset[Any]:
        del split
        files: Dataset[Any] = FORMATS[self._format](self._place)
        return files

    def collate(self, samples: Sequence[Any]) -> Tensor:
        # A line is the number itself.
        numbers = (each if isinstance(each, bytes) else each["number"] for each in samples)
        return torch.tensor([int(number) for number in numbers])
