"""Data that is read in order: numbered sources, each from any of its samples on.

A stream of this kind has numbers for its samples as every data set has: those of the first source,
then those of the next one. So leases, accounts and audits are the same ones. Only the order
differs: a portion is a range of neighbours, which is read in one go.
"""

import hashlib
import json
import operator
import os
import threading
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import Any

from torch.utils.data import Dataset, IterableDataset

from disttrain.task import user_code
from disttrain.task.errors import DatasetError


class Sources(IterableDataset[Any]):
    """What `Task.dataset` returns for data that only streams well. Extend it for your own format.

    The same in every process, and unchanged as long as the job lasts, resumes included.
    """

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Return a name for each source, such as its file; sources are numbered in this order."""

    @abstractmethod
    def count(self, source: int) -> int:
        """Return the number of samples of a source, which may be 0."""

    @abstractmethod
    def read(self, source: int, first: int) -> Iterator[Any]:
        """Return the samples of a source in order, from number `first` on, until its end.

        Several may be under way at once, each on another thread or in another process.
        """

    def __iter__(self) -> Iterator[Any]:
        """Every sample once, for a loop of your own."""
        for source in range(len(self.names())):
            yield from self.read(source, 0)


class SourcesReader(Dataset[Any]):
    """Sources as a data set with numbers. To read neighbours one after another costs one opening.

    Any thread and any forked process may ask; each reads by itself.
    """

    def __init__(self, sources: Sources, what: str) -> None:
        """Count all samples; `what` returned the sources. Raises TaskError."""
        self._sources = sources
        self._kind = type(sources).__name__
        self._names = _checked_names(sources, what)
        counts = [self._counted(source) for source in range(len(self._names))]
        self._ends = list(accumulate(counts))
        self._open = threading.local()
        self.begins = [end - count for end, count in zip(self._ends, counts, strict=True) if count]
        """Number of the first sample of each source that has any."""
        told = json.dumps([self._names, counts]).encode()
        self.digest = hashlib.blake2b(told, digest_size=16).hexdigest()
        """Of names and numbers of samples: replicas with the same one have the same portions."""

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Any:
        """Raises TaskError: IndexError would end a loop over a source that changed."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Samples by their numbers; neighbours in a row are read in order. Raises TaskError."""
        found: list[Any] = []
        while len(found) < len(indices):
            found += self._neighbours(indices[len(found) :])
        return found

    def _neighbours(self, indices: Sequence[int]) -> list[Any]:
        """The first of these samples, and those that follow it in its source."""
        index = indices[0]
        source = bisect_right(self._ends, index)
        number = index - (self._ends[source - 1] if source else 0)
        most = min(len(indices), self._ends[source] - index)
        count = next((n for n in range(1, most) if indices[n] != index + n), most)
        is_last = index + count == self._ends[source]
        found: list[Any] = []
        with user_code.running(lambda: self._call("read", source, f", {number + len(found)}")):
            samples = self._samples_from(source, number, index)
            found.extend(islice(samples, count))
            goes_on = is_last and next(samples, self) is not self
        if len(found) < count:
            self._changed(source, f"ended after {number + len(found)}")
        if goes_on:
            self._changed(source, "goes on after")
        self._open.place = None if is_last else (os.getpid(), index + count)
        return found

    def _samples_from(self, source: int, number: int, index: int) -> Iterator[Any]:
        # A forked process has its parent's iterator, and with it the place in an open file.
        if getattr(self._open, "place", None) != (os.getpid(), index):
            self._open.samples = iter(self._sources.read(source, number))
        # If this read fails, nobody may go on from where it stopped.
        self._open.place = None
        samples: Iterator[Any] = self._open.samples
        return samples

    def _counted(self, source: int) -> int:
        with user_code.running(lambda: self._call("count", source)):
            told: Any = self._sources.count(source)
        # Numpy's whole numbers are as good.
        count = operator.index(told) if hasattr(told, "__index__") else -1
        if count < 0:
            message = f"{self._call('count', source)} must be a whole number from 0, got {told!r}"
            raise DatasetError(message)
        return count

    def _changed(self, source: int, how: str) -> None:
        counted = self._ends[source] - (self._ends[source - 1] if source else 0)
        message = (
            f"the source '{self._names[source]}' of {self._kind} {how} the {counted} samples that "
            "count() told; sources must not change while a job uses them: begin a new run with "
            "the data as it is now"
        )
        raise DatasetError(message)

    def _call(self, method: str, source: int, more: str = "") -> str:
        return f"{self._kind}.{method}({source}{more}) of the source '{self._names[source]}'"


def _checked_names(sources: Sources, what: str) -> list[str]:
    with user_code.running(f"{type(sources).__name__}.names()"):
        names = list(sources.names())
    if not names:
        message = f"{what} has no sources; check the paths among spec.task.arguments"
        raise DatasetError(message)
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong or len(set(names)) < len(names):
        twice = next((name for name in names if names.count(name) > 1), None)
        got = f"got {wrong[0]!r}" if wrong else f"'{twice}' is there twice"
        message = f"{type(sources).__name__}.names() must be texts, each once; {got}"
        raise DatasetError(message)
    return names
