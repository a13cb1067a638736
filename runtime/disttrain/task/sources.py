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
from itertools import accumulate, islice, pairwise
from typing import Any

from torch.utils.data import Dataset, IterableDataset

from disttrain.task import user_code
from disttrain.task.errors import DatasetError
from disttrain.task.same_samples import are_the_same

_COMPARED = 8
"""Samples, by which a source is known to begin at its beginning: fewer may be alike by chance."""


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

        Whoever goes on where another has died begins in the midst. Several may be under way at
        once, each on another thread or in another process.
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
        self._what = what
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

    def check_beginnings(self) -> None:
        """Refuse a `read` that does not begin where it is told to. Raises TaskError.

        A few samples of one source are read: without them the wrong ones would be trained,
        silently. Of several the shortest one is taken, since its end may cost all that is before.
        """
        counts = [end - begin for begin, end in pairwise([0, *self._ends])]
        long = [count for count in counts if count > _COMPARED] or [max(counts)]
        source = counts.index(min(long))
        if counts[source] > 1:
            self._check_second(source, min(_COMPARED, counts[source] - 1))
            self._check_last(source, counts[source] - 1)

    def _check_second(self, source: int, compared: int) -> None:
        """Samples that draw random numbers are others each time: they show nothing, refuse nothing.

        So do those whose content is not known, and those that are all alike.
        """
        if self._begins_anew(source, compared) and self._begins_anew(source, compared):
            self._refuse(f"{self._call('read', source, ', 1')} gave the samples from number 0 on")

    def _begins_anew(self, source: int, compared: int) -> bool:
        whole = self._some(source, 0, compared + 1)
        second = self._some(source, 1, compared)
        return are_the_same(second, whole[:-1]) and not are_the_same(second, whole[1:])

    def _check_last(self, source: int, last: int) -> None:
        """Whatever the samples are, after the last one there is none."""
        if (found := len(self._some(source, last, 2))) != 1:
            call = self._call("read", source, f", {last}")
            gave = "more" if found else "none"
            self._refuse(f"{call} gave {gave}, where of {last + 1} samples one is left")

    def _some(self, source: int, first: int, most: int) -> list[Any]:
        with user_code.running(lambda: self._call("read", source, f", {first}")):
            return list(islice(self._sources.read(source, first), most))

    def _refuse(self, seen: str) -> None:
        message = (
            f"spec.task.entrypoint: {self._what} cannot go on in the midst of a source: {seen}; "
            "read() has to begin with number `first`, and count() to tell how many there are from "
            "0 on: skip those before, for example by itertools.islice(samples, first, None)"
        )
        raise DatasetError(message)

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
            self._changed(source, f"ended after {number + len(found)} of")
        if goes_on:
            self._changed(source, "goes on after")
        self._open.place = None if is_last else (os.getpid(), index + count)
        return found

    def _samples_from(self, source: int, number: int, index: int) -> Iterator[Any]:
        # A forked process has its parent's iterator, and with it the place in an open file.
        if getattr(self._open, "place", None) != (os.getpid(), index):
            self._open.samples = iter(self._sources.read(source, number))
            self._open.first = number
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
        # Who begins elsewhere than told looks like a source with another end.
        first = self._open.first
        read = f", read from number {first} on," if first else ""
        other = f"let read() begin with number {first}; if it does, " if first else ""
        message = (
            f"the source '{self._names[source]}' of {self._kind}{read} {how} the {counted} samples "
            f"that count() told; {other}sources must not change while a job uses them: begin a new "
            "run with the data as it is now"
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
