"""What the learning rate does after a warm-up, by the samples that the job has processed. Pure."""

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from disttrain.job.length import THE_RUN, Extent, Length, Measured
from disttrain.job.section import Count, Fraction, Positive, Section, WholeNumber

_ROUNDED_UP = 1.0 + 1e-9
"""Fractions that are the whole run together may come to a little more as floats."""

Factor = Callable[[float], float]
"""From the samples in the parameters to the fraction of the full rate."""


_MOST_DIGITS = 15
"""Of the factor by which the rate ever grows, as of the rate: float32 ends with 39 digits."""


def full_rate(_samples: float) -> float:
    return 1.0


class Warmup(Length):
    """The rate grows linearly over the given samples, epochs or fraction of the run."""

    from_fraction: Fraction = 0.0
    """What the rate begins with, as a fraction of the full one."""


class ScheduleKind(Section):
    """What the rate does after a warm-up."""

    @property
    def own_warmup(self) -> Warmup | None:
        """What its own fields say about one."""
        return None

    @abstractmethod
    def after(self, warmup: float, run: Extent) -> Factor:
        """What the full rate is multiplied by after a warm-up of so many samples.

        Raises ValueError before `run` is known enough.
        """

    def lengths(self) -> Iterator[tuple[str, Measured]]:
        """Its lengths, with their places in the manifest below this section; "": the section."""
        yield from ()

    def problem_after(self, warmup: Warmup | None, run: Extent) -> str | None:
        """What does not fit into a run, as far as this is known; None: nothing."""
        del warmup, run
        return None


class Constant(ScheduleKind):
    """The rate stays as it is."""

    def after(self, warmup: float, run: Extent) -> Factor:
        del warmup, run
        return full_rate


class LinearWarmup(ScheduleKind):
    """The rate grows linearly from 0 and then stays."""

    samples: Count = Field(examples=[5000])
    """Samples after which the full rate is reached."""

    @property
    def own_warmup(self) -> Warmup | None:
        return Warmup(samples=self.samples)

    def after(self, warmup: float, run: Extent) -> Factor:
        del warmup, run
        return full_rate


class Steps(ScheduleKind):
    """The rate is multiplied by a factor at given points."""

    alternatives = ("atSamples", "atEpochs")

    at_samples: Annotated[tuple[Count, ...], Field(strict=False)] | None = Field(
        default=None, min_length=1, max_length=1000, examples=[[30000, 60000]]
    )
    """Samples at which the rate is multiplied by the factor, in increasing order."""

    at_epochs: Annotated[tuple[Positive, ...], Field(strict=False)] | None = Field(
        default=None, min_length=1, max_length=1000, examples=[[30, 60]]
    )
    """The same in passes over the training data."""

    factor: Positive = 0.1
    """What the rate is multiplied by at each point."""

    def problem(self) -> str | None:
        if (wrong := super().problem()) is not None:
            return wrong
        name = next(name for name in self.alternatives if name in self.given())
        points = self.given()[name]
        for before, after in pairwise(points):
            if after <= before:
                return f"{name} must increase, got {after} after {before}"
        if len(points) * math.log10(self.factor) > _MOST_DIGITS:
            return (
                f"factor is {self.factor:g}, {len(points)} times, which no rate can be; take less"
            )
        return None

    @property
    def points(self) -> tuple[Measured, ...]:
        return (
            *(Measured(samples=point) for point in self.at_samples or ()),
            *(Measured(epochs=point) for point in self.at_epochs or ()),
        )

    def after(self, warmup: float, run: Extent) -> Factor:
        del warmup
        points, factor = [point.length_in(run) for point in self.points], self.factor
        return lambda samples: float(factor ** bisect_right(points, samples))

    def problem_after(self, warmup: Warmup | None, run: Extent) -> str | None:
        return _too_late(warmup, self.points[0], run)


class Falling(ScheduleKind):
    """A schedule that falls from the full rate, and keeps what it has come to."""

    final_fraction: Fraction = 0.0
    """The final rate, as a fraction of the full one."""

    @property
    def end(self) -> Measured:
        """When it has fallen, the warm-up included."""
        return THE_RUN

    @abstractmethod
    def left(self, done: float) -> float:
        """From 1 to 0 as `done` goes from 0 to 1."""

    def falls_from(self, warmup: float, run: Extent) -> float:
        """Samples after which it begins to fall."""
        del run
        return warmup

    def after(self, warmup: float, run: Extent) -> Factor:
        begin, end = self.falls_from(warmup, run), self.end.length_in(run)
        if end <= begin:
            message = f"falls from {begin:g} to {end:g} samples"
            raise ValueError(message)
        final, left = self.final_fraction, self.left

        def falling(samples: float) -> float:
            if samples <= begin:
                return 1.0
            return between(final, left(min(1.0, (samples - begin) / (end - begin))))

        return falling

    def lengths(self) -> Iterator[tuple[str, Measured]]:
        yield "", self.end

    def problem_after(self, warmup: Warmup | None, run: Extent) -> str | None:
        return _too_late(warmup, self.end, run)


class Cosine(Falling):
    """The rate falls along half a cosine."""

    samples: Count | None = Field(default=None, examples=[100000])
    """Samples at which the final rate is reached, the warm-up's included. null: as the run ends."""

    warmup_samples: WholeNumber = 0
    """The same as `warmup: {samples: ...}` beside it; 0: no such warm-up."""

    def problem(self) -> str | None:
        if self.samples is None or self.warmup_samples < self.samples:
            return super().problem()
        return (
            f"warmupSamples must be less than samples ({self.samples}), got {self.warmup_samples}"
        )

    @property
    def end(self) -> Measured:
        return THE_RUN if self.samples is None else Measured(samples=self.samples)

    @property
    def own_warmup(self) -> Warmup | None:
        return Warmup(samples=self.warmup_samples) if self.warmup_samples else None

    def left(self, done: float) -> float:
        return _half_cosine(done)


class Linear(Falling):
    """The rate falls in a straight line."""

    def left(self, done: float) -> float:
        return _straight(done)


class Exponential(ScheduleKind):
    """The rate falls by the same factor over each length of the run. It never ends."""

    factor: Annotated[float, Field(gt=0, lt=1)] = Field(examples=[0.94])
    """What the rate is multiplied by over each such length, smoothly."""

    per: Length = Field(examples=[{"epochs": 2}])
    """Over how much of the run it does so once."""

    def after(self, warmup: float, run: Extent) -> Factor:
        factor, length = self.factor, self.per.length_in(run)
        return lambda samples: float(factor ** (max(0.0, samples - warmup) / length))

    def lengths(self) -> Iterator[tuple[str, Measured]]:
        yield "per", self.per


class InverseRoot(ScheduleKind):
    """The rate falls with the root of the samples, as the Transformer's. It needs a `warmup`.

    After four times the warm-up's samples it is half of the full rate. It never ends.
    """

    def after(self, warmup: float, run: Extent) -> Factor:
        del run
        return lambda samples: math.sqrt(warmup / samples) if samples > warmup else 1.0

    def problem_after(self, warmup: Warmup | None, run: Extent) -> str | None:
        del run
        if warmup is not None:
            return None
        return (
            "inverseRoot falls by the length of a warm-up; set warmup beside it, as "
            "{fraction: 0.05}"
        )


class DecayShape(StrEnum):
    """How the rate falls at the end."""

    LINEAR = "linear"
    """In a straight line."""
    COSINE = "cosine"
    """Along half a cosine."""
    ONE_MINUS_ROOT = "oneMinusRoot"
    """By the root of the decay's share that is done: fast at first."""


class WarmupStableDecay(Falling):
    """The rate grows, stays at its full height, and falls at the end of the run."""

    decay: Length = Field(examples=[{"fraction": 0.2}])
    """How long it falls."""

    shape: Annotated[DecayShape, Field(strict=False)] = DecayShape.LINEAR
    """How it falls."""

    def left(self, done: float) -> float:
        match self.shape:
            case DecayShape.LINEAR:
                return _straight(done)
            case DecayShape.COSINE:
                return _half_cosine(done)
            case DecayShape.ONE_MINUS_ROOT:
                return 1.0 - math.sqrt(done)

    def falls_from(self, warmup: float, run: Extent) -> float:
        """Not before the warm-up has ended: `problem_in` says so before."""
        return max(warmup, self.end.length_in(run) - self.decay.length_in(run))

    def lengths(self) -> Iterator[tuple[str, Measured]]:
        yield from super().lengths()
        yield "decay", self.decay

    def problem_after(self, warmup: Warmup | None, run: Extent) -> str | None:
        if (wrong := super().problem_after(warmup, run)) is not None:
            return wrong
        grows = 0.0 if warmup is None else warmup.known_in(run)
        falls, end = self.decay.known_in(run), self.end.known_in(run)
        if grows is None or falls is None or end is None or grows + falls <= end * _ROUNDED_UP:
            return None
        before = "" if warmup is None else f" after a warmup of {warmup.words}"
        return (
            f"warmupStableDecay.decay is {self.decay.words}{before}, longer than the run; take less"
        )


def _half_cosine(done: float) -> float:
    return (1.0 + math.cos(math.pi * done)) / 2.0


def _straight(done: float) -> float:
    return 1.0 - done


def between(first: float, share: float) -> float:
    """From `first` to 1, with the very number at both ends."""
    return first + (1.0 - first) * share


def _too_late(warmup: Warmup | None, end: Measured, run: Extent) -> str | None:
    """Why a warm-up leaves no room before the rate has fallen."""
    grows = 0.0 if warmup is None else warmup.known_in(run)
    fallen = end.known_in(run)
    if warmup is None or grows is None or fallen is None or grows < fallen:
        return None
    return (
        f"warmup is {warmup.words}, but the rate falls before the end of {end.words}; "
        "take a shorter one"
    )
