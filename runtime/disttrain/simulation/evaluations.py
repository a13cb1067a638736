"""What a simulated run comes to: its evaluations, which take no time, and when they end it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from disttrain.replay import final_values
from disttrain.replay.final_values import Measured
from disttrain.replay.replica import Learner
from disttrain.simulation.setting import Setting
from disttrain.state.vector import Vector


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """An evaluation of the shards' values, which takes no time."""

    seconds: float
    """Of virtual time since the run began."""
    samples: int
    measured: Measured


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One run."""

    replicas: int
    seconds: float
    """Until the target was met, or the end."""
    samples: int
    """In the shards' values then."""
    target_met: bool | None
    """None: the job has no target."""
    nbytes: int
    """Pushed and fetched by all replicas, without headers."""
    staleness: dict[int, int]
    """Pushes by their staleness, on all shards; none of a batch method."""
    computing: float
    """Part of the replicas' time in which they computed."""
    points: tuple[Point, ...] = field(repr=False)
    groups: int | None = None
    """Of portions, that replicas compute of a batch; None: the strategy has no batches."""

    def staleness_at(self, share: float) -> int:
        """The smallest staleness that this part of the pushes does not exceed."""
        wanted, seen = math.ceil(share * sum(self.staleness.values())), 0
        for value in sorted(self.staleness):
            seen += self.staleness[value]
            if seen >= wanted:
                return value
        return 0

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds if self.seconds else 0.0


def _say_nothing(point: Point) -> None:
    del point


class Evaluations:
    """Of one run. The learner has the initial values, and then those of each evaluation."""

    def __init__(self, setting: Setting, every_samples: int) -> None:
        self.learner = Learner(setting, outgoing_buffers=0)
        self.points: list[Point] = []
        self.tell: Callable[[Point], None] = _say_nothing
        """Called with each evaluation."""
        self.next_samples = every_samples
        """From which on another one is due."""
        self.is_target_met = False
        self._setting = setting
        self._every_samples = every_samples
        self._best: float | None = None
        self._worse = 0
        """In a row that found nothing better than the best."""

    def add(self, seconds: float, samples: int, values: Mapping[Vector, Tensor]) -> bool:
        """Measure these values; whether what was found ends the run."""
        return self.take(seconds, samples, self.measure(values))

    def measure(self, values: Mapping[Vector, Tensor]) -> Measured:
        """What a model of these values does on the test split."""
        final_values.take_over(self.learner, values)
        return final_values.measure_module(self._setting, self.learner.module)

    def take(self, seconds: float, samples: int, measured: Measured) -> bool:
        """Take note of what was measured; whether it ends the run."""
        point = Point(seconds=seconds, samples=samples, measured=measured)
        self.points.append(point)
        self.next_samples = samples + self._every_samples
        self.tell(point)
        return self._ends(measured)

    def result(
        self,
        *,
        replicas: int,
        nbytes: int,
        computing_seconds: float,
        staleness: Mapping[int, int] | None = None,
        groups: int | None = None,
    ) -> Result:
        """Of a run that is over. `computing_seconds`: of all replicas together."""
        last, in_all = self.points[-1], self.points[-1].seconds * replicas
        has_target = self._setting.spec.stop.target_metric is not None
        return Result(
            replicas=replicas,
            seconds=last.seconds,
            samples=last.samples,
            target_met=self.is_target_met if has_target else None,
            nbytes=nbytes,
            staleness=dict(staleness or {}),
            computing=min(1.0, computing_seconds / in_all) if in_all else 0.0,
            points=tuple(self.points),
            groups=groups,
        )

    def _ends(self, measured: Measured) -> bool:
        stop = self._setting.spec.stop
        target, patience = stop.target_metric, stop.patience
        if target is not None:
            value = measured.measures.get(target.name, math.nan)
            self.is_target_met = self.is_target_met or target.is_met(value)
        if patience is not None:
            judged = patience.value_of(measured.measures, measured.loss)
            better = patience.improves(judged, self._best)
            self._best, self._worse = (judged, 0) if better else (self._best, self._worse + 1)
        is_vain = patience is not None and self._worse >= patience.evaluations
        return self.is_target_met or is_vain
