"""How the learning rate changes with the samples that the job has processed. Pure.

A schedule is a function of these samples alone. So it gives the same bits after restarts, for
chunks that are sent again, and with another number of shards.
"""

from collections.abc import Iterator

from pydantic import Field

from disttrain.job.length import Extent, Measured
from disttrain.job.schedule_kinds import (
    Constant,
    Cosine,
    Exponential,
    Factor,
    InverseRoot,
    Linear,
    LinearWarmup,
    ScheduleKind,
    Steps,
    Warmup,
    WarmupStableDecay,
    between,
)
from disttrain.job.section import Section


class Schedule(Section):
    """How the rate changes: exactly one of the kinds, which may begin with a `warmup`.

    It goes by the samples that the whole job has processed.
    """

    alternatives = (
        "constant",
        "linearWarmup",
        "steps",
        "cosine",
        "linear",
        "exponential",
        "inverseRoot",
        "warmupStableDecay",
    )

    warmup: Warmup | None = Field(default=None, examples=[{"fraction": 0.05}])
    """Linear growth to the full rate before all else. null: the full rate at once."""

    constant: Constant | None = None
    """No change. Written `constant: {}`."""

    linear_warmup: LinearWarmup | None = None
    """The same as a `warmup` by samples and then `constant: {}`."""

    steps: Steps | None = None
    """Multiply by a factor at given points."""

    cosine: Cosine | None = None
    """Fall along half a cosine."""

    linear: Linear | None = None
    """Fall in a straight line."""

    exponential: Exponential | None = None
    """Fall by the same factor again and again."""

    inverse_root: InverseRoot | None = None
    """Fall with the root of the samples."""

    warmup_stable_decay: WarmupStableDecay | None = None
    """Stay, and fall at the end."""

    @property
    def rule(self) -> ScheduleKind:
        given = self.given()
        chosen: ScheduleKind = next(given[name] for name in self.alternatives if name in given)
        return chosen

    @property
    def is_constant(self) -> bool:
        """Whether the rate is the full one all the time."""
        return self.beginning is None and self.constant is not None

    @property
    def beginning(self) -> Warmup | None:
        return self.warmup or self.rule.own_warmup

    def problem(self) -> str | None:
        if (wrong := super().problem()) is not None:
            return wrong
        if self.warmup is not None and self.rule.own_warmup is not None:
            return f"has a warmup, and another one in {self._name}; leave one of them out"
        return None

    def rates(self, run: Extent) -> Factor:
        """What the full rate is multiplied by. Raises ValueError before `run` is known enough."""
        if self.beginning is None:
            return self.rule.after(0.0, run)
        end, first = self.beginning.length_in(run), self.beginning.from_fraction
        after = self.rule.after(end, run)

        def warmed(samples: float) -> float:
            return between(first, samples / end) if samples < end else after(samples)

        return warmed

    def problem_in(self, run: Extent) -> str | None:
        """What does not fit into a run, as far as this is known, with its place; None: nothing."""
        for place, length in self._lengths():
            if length.is_of_the_run and not run.has_end:
                return (
                    f"{place} goes by {length.words}, whose samples nothing limits; "
                    "set spec.stop.epochs, samples or steps, or say the length in samples or epochs"
                )
        known = None if self.warmup is None else self.warmup.known_in(run)
        if self.warmup is not None and known and run.samples and known > run.samples:
            return f"warmup is {self.warmup.words}, longer than the run; take a shorter one"
        return self.rule.problem_after(self.beginning, run)

    @property
    def _name(self) -> str:
        given = self.given()
        return next(name for name in self.alternatives if name in given)

    def _lengths(self) -> Iterator[tuple[str, Measured]]:
        if self.warmup is not None:
            yield "warmup", self.warmup
        for place, length in self.rule.lengths():
            yield ".".join(filter(None, (self._name, place))), length
