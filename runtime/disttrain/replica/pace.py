"""How far computing may run ahead of the parameter server: the decision, from measured seconds.

A gradient is stale by what is applied between the fetch of its parameters and its own push. With N
replicas of equal speed that is N - 1 updates when a step waits for the answer to its push and then
for fresh parameters; N when the parameters of the next step arrive as this one ends; 2 N - 1 when
they are asked for as it begins. So a step waits as long as that costs little, and otherwise asks as
late as it can.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable

SHARE = 0.4
"""Of the seconds of all steps for each that fetches, divided by the number of replicas: waiting for
longer costs more than one update less of N is worth. One replica may wait for two fifths of a step,
four for a tenth."""
TRIED_STEPS = 8
"""Steps that fetch and wait before waiting is judged."""
TRIAL_SHARE = 0.01
"""Of all time at most this much goes into trying whether waiting has become short enough."""
LEAST_PAUSE_STEPS = 100
"""Between two such trials."""
_KEPT_STEPS = 32


class Pace:
    """Asked in this order by each step that fetches. Belongs to the compute thread.

    This one asks for parameters as a step begins, and takes what is there as it ends.
    """

    def fetch_after_seconds(self) -> float | None:
        """When in the step that begins its fetch is due; None: after the answer to its push."""
        return 0.0

    def computed(self) -> None:
        """The step's gradient is there, on a GPU too."""

    def patience_seconds(self) -> float:
        """How long the end of a step may stay for parameters, if `fetch_after_seconds` said when.

        Later steps may ask again while the fetch is under way.
        """
        return 0.0

    def ended(self, fetch_seconds: float) -> None:
        """The step has ended; the latest fetch took so long."""


class NeverWaits(Pace):
    """Of a replayed step: the record says what was there."""


class MeasuredPace(Pace):
    """Waits while that is short beside computing, tries again now and then where it is not."""

    def __init__(
        self, replicas: int, fetch_every: int = 1, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`fetch_every`: steps for each that fetches; `clock`: seconds, which only grow."""
        self._share = SHARE / replicas
        self._fetch_every = fetch_every
        self._clock = clock
        self._began = self._computed = clock()
        self._computing: deque[float] = deque(maxlen=_KEPT_STEPS)
        self._fetching: deque[float] = deque(maxlen=TRIED_STEPS)
        self._waiting: list[float] = []
        self._pause_steps = 0
        """Steps that fetch before waiting is tried again; 0: this one waits."""

    def fetch_after_seconds(self) -> float | None:
        """See `Pace`. Parameters that come late cost a whole step of staleness, so: rather early.

        The quickest quarter of the latest steps and twice the usual fetch are reckoned with.
        """
        self._began = self._clock()
        if not self._pause_steps:
            return None
        quick = statistics.quantiles(self._computing, n=4)[0] if len(self._computing) > 1 else 0.0
        fetch = statistics.median(self._fetching) if self._fetching else 0.0
        return max(0.0, quick - 2 * fetch)

    def computed(self) -> None:
        self._computed = self._clock()
        self._computing.append(self._computed - self._began)

    def patience_seconds(self) -> float:
        return self._share * statistics.median(self._computing)

    def ended(self, fetch_seconds: float) -> None:
        self._fetching.append(fetch_seconds)
        if self._pause_steps:
            self._pause_steps -= 1
            return
        self._waiting.append(self._clock() - self._computed)
        if len(self._waiting) == TRIED_STEPS:
            computing = self._fetch_every * statistics.median(self._computing)
            self._judge(statistics.median(self._waiting) / computing)
            self._waiting.clear()

    def _judge(self, share: float) -> None:
        if share > self._share:
            trial_steps = TRIED_STEPS * share
            self._pause_steps = max(LEAST_PAUSE_STEPS, round(trial_steps / TRIAL_SHARE))
