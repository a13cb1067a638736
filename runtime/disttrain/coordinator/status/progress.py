"""The strategies of a job one after another, how far it is, and how long it will take. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from disttrain.coordinator.journal.state import State
from disttrain.coordinator.phases import Phase, StopReason
from disttrain.coordinator.settings import Settings
from disttrain.coordinator.status.watch import Watch


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage(ABC):
    """One strategy of a job, as the status sees it. Holds no state of the job."""

    settings: Settings

    @abstractmethod
    def has_begun(self, state: State) -> bool:
        """Whether the job has come to it, or past it."""

    def is_warming_up(self, state: State) -> bool:
        """Whether it begins with a part of the replicas, and has not processed enough samples."""
        del state
        return False

    def iterations(self, state: State) -> int:
        """Steps of a method that counts them; 0 of others."""
        del state
        return 0

    def loss(self, state: State, watch: Watch) -> float | None:
        """What is made smaller: else what the replicas' batches had lately. None: not known yet."""
        del state
        return watch.loss

    def status(self, state: State) -> dict[str, Any]:
        """Fields of the job's status that are this strategy's own."""
        del state
        return {}


def at_work(stages: Sequence[Stage], state: State) -> int:
    """The number of the stage that the job has come to."""
    begun = (number for number, stage in enumerate(stages) if stage.has_begun(state))
    return max(begun, default=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """Of the stop rule that will be met first."""

    fraction: float | None
    """From 0 to 1; None: only a target metric ends the job."""
    remaining_seconds: float | None
    """None: nothing is known yet, or only a target metric ends the job."""


def epochs_processed(state: State) -> float:
    """Passes over the data, with the fraction of the current one."""
    return state.data.samples_done / state.data.samples if state.data.samples else 0.0


def estimate(state: State, last: Stage, now: float, speed: float) -> Estimate:
    """What is left of a job with this last stage, at the present speed in samples per second."""
    settings = last.settings
    # A batch method that has converged does no more of what its limits allow.
    if state.phase is Phase.COMPLETE or state.reason == StopReason.CONVERGED:
        return Estimate(fraction=1.0, remaining_seconds=0.0)
    estimates = [
        *_by_samples(state, settings, speed),
        *_by_iterations(state, last, now),
        *_by_seconds(state, settings, now),
    ]
    if state.phase.ended:
        # Stopped or failed: how far it came.
        return Estimate(fraction=_furthest(estimates), remaining_seconds=None)
    known = [item for item in estimates if item.remaining_seconds is not None]
    if known:
        return min(known, key=lambda item: item.remaining_seconds or 0.0)
    return Estimate(fraction=_furthest(estimates), remaining_seconds=None)


def _furthest(estimates: list[Estimate]) -> float | None:
    return max((item.fraction for item in estimates if item.fraction is not None), default=None)


def _by_iterations(state: State, last: Stage, now: float) -> list[Estimate]:
    limit, done = last.settings.stop.iterations, last.iterations(state)
    if limit is None:
        return []
    if not done:
        return [Estimate(fraction=0.0, remaining_seconds=None)]
    fraction = min(1.0, done / limit)
    remaining = state.seconds(now) * (1.0 - fraction) / fraction
    return [Estimate(fraction=fraction, remaining_seconds=remaining)]


def _by_seconds(state: State, settings: Settings, now: float) -> list[Estimate]:
    seconds = settings.stop.seconds
    if seconds is None:
        return []
    used = state.seconds(now)
    fraction = min(1.0, used / seconds)
    return [Estimate(fraction=fraction, remaining_seconds=max(0.0, seconds - used))]


def _by_samples(state: State, settings: Settings, speed: float) -> list[Estimate]:
    stop, done = settings.stop, state.samples
    targets = [
        stop.samples,
        stop.epochs * state.data.samples if stop.epochs else None,
        stop.steps * settings.batch_size if stop.steps else None,
    ]
    return [
        Estimate(
            fraction=min(1.0, done / target) if target else 0.0,
            remaining_seconds=max(0, target - done) / speed if target and speed > 0 else None,
        )
        for target in targets
        if target is not None
    ]
