"""What all iteration schemes have in common: state, the form of transitions, line searches.

A scheme is pure: answers in, requests out. It says which evaluations and commands there are.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from disttrain.sandblaster import operations as ops
from disttrain.sandblaster.directions import Chosen, Directions, FirstStep
from disttrain.sandblaster.line_search import (
    Point,
    Search,
    SearchRules,
    Stage,
    WolfeSearch,
    is_flat,
)
from disttrain.sandblaster.method import Answer, End, Progress, Request
from disttrain.sandblaster.operations import (
    DIRECTION,
    GRADIENT,
    PARAMETERS,
    TRIAL,
    Combination,
    Operation,
)
from disttrain.sandblaster.products import Products

MOST_DECISIONS = 50
"""How many a method keeps."""


class Verdict(StrEnum):
    """What became of a point."""

    BEGUN = "begun"
    """It is the first one, or the first that a batch is evaluated at."""
    ACCEPTED = "accepted"
    """It is the next point: it fulfils what the line search asks for."""
    SETTLED = "settled"
    """It is the next point: it is the lowest one that there was when the search gave up."""
    EXTRAPOLATED = "extrapolated"
    """The loss still falls there: the next trial is further away."""
    ZOOMED = "zoomed"
    """A minimum is enclosed: the next trial is inside."""
    SHORTENED = "shortened"
    """The loss fell too little: the next trial is nearer."""
    RETURNED = "returned"
    """The search gives up: the next trial is the lowest point there was."""
    RESTARTED = "restarted"
    """No lower point was found, or the direction is no descent: against the gradient next, with
    nothing remembered."""
    ENDED = "ended"
    """Not even against the gradient was a lower point found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """One evaluation, or one direction that was given up."""

    iteration: int
    """Points that were accepted before."""
    evaluation: int
    """From 1."""
    step: float
    """Length, against the direction's; 0 where a search begins."""
    loss: float
    slope: float
    """Of the loss along the direction; where a search begins, against the gradient."""
    verdict: Verdict


def on_trial(before: Search, found: Search) -> Verdict:
    """What became of the trial of `before`, after which the search is `found`."""
    if found.stage is Stage.FAILED:
        return Verdict.RESTARTED
    if found.stage is Stage.ACCEPTED:
        settles = isinstance(before, WolfeSearch) and before.is_settling
        return Verdict.SETTLED if settles else Verdict.ACCEPTED
    if not isinstance(found, WolfeSearch):
        return Verdict.SHORTENED
    if found.is_settling:
        return Verdict.RETURNED
    return Verdict.EXTRAPOLATED if found.high is None else Verdict.ZOOMED


class Waiting(StrEnum):
    """What the answer that is awaited says."""

    FIRST = "first"
    """Loss and gradient where it all begins."""
    TRIAL = "trial"
    """Loss and gradient at a trial point."""
    PRODUCTS = "products"
    """The exact products at the accepted point."""
    LAST = "last"
    """That the last point is accepted."""
    BATCH = "batch"
    """Loss and gradient over the next batch at the point accepted last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """Everything that the next step depends on: plain values."""

    waiting: Waiting = Waiting.FIRST
    progress: Progress = field(default_factory=Progress)
    products: Products = field(default_factory=lambda: Products(table={}))
    """Of the vectors that the direction is, or can be, made of."""
    absolute_sum: float = 0.0
    """Of the gradient's elements."""
    along: Combination = field(default_factory=dict)
    """The direction, as a combination of the vectors in `products`."""
    formed: Combination = field(default_factory=dict)
    """What the shards made it of."""
    search: Search | None = None
    """Along the direction; None before the first one."""
    since_exact: int = 0
    """Iterations since the products were computed from the vectors."""
    decisions: tuple[Decision, ...] = ()
    """The latest ones, the oldest first."""
    batch: int = 0
    """Under way, if batches are smaller than the data."""
    newest: int | None = None
    """Slot of a pair whose products are not known yet."""
    restful: int = 0
    """Batches, or steps that were cut, in a row that gave no reason to go on."""
    cuts: int = 0
    """Since the point accepted last: trial points whose loss or slope is no number, and searches
    that gave up where the loss still fell."""
    cut_from: float = 0.0
    """The gradient's largest element where a step began that was cut so; 0: no step was, or since
    then it has become half as large."""


@dataclass(frozen=True, slots=True)
class Step:
    """What an answer leads to."""

    state: State
    request: Request | None = None
    """None: done."""


class IterationScheme(Protocol):
    """The transitions of a method. Holds no state."""

    def begin(self) -> Step:
        """The evaluation of the first point."""
        ...

    def advance(self, state: State, answer: Answer) -> Step:
        """What an answer leads to."""
        ...


def searched(state: State, search: Search, point: Point) -> State:
    found, before, wrong = search.advanced(point), state.progress, int(not point.is_finite)
    progress = replace(
        before, evaluations=before.evaluations + 1, non_finite=before.non_finite + wrong
    )
    cuts = state.cuts + wrong + _fell_on(found, point)
    known = replace(state, search=found, progress=progress, cuts=cuts)
    return decided(known, point, on_trial(search, found))


def decided(state: State, point: Point, verdict: Verdict) -> State:
    new = Decision(
        iteration=state.progress.iteration,
        evaluation=state.progress.evaluations,
        step=point.step,
        loss=point.loss,
        slope=point.slope,
        verdict=verdict,
    )
    return replace(state, decisions=(*state.decisions, new)[-MOST_DECISIONS:])


def _fell_on(found: Search, point: Point) -> bool:
    """Whether a search has taken a point from which the loss falls on, for want of evaluations."""
    if found.stage is not Stage.ACCEPTED or not isinstance(found, WolfeSearch):
        return False
    return found.high is None and not is_flat(found, point)


def trial(step: float) -> Operation:
    return ops.Combine(target=TRIAL, terms={PARAMETERS: 1.0, DIRECTION: step})


def ended(state: State, reason: End) -> Step:
    progress = replace(state.progress, end=reason)
    return Step(replace(state, waiting=Waiting.LAST, progress=progress))


def no_descent(state: State) -> End:
    """Why no lower point was found from here."""
    start = search_of(state).start
    is_cut = state.cuts or state.cut_from or not start.is_finite
    return End.NO_MINIMUM if is_cut else End.NO_DESCENT


def given_up(state: State) -> State:
    """With a last decision that was to begin again, but there is nothing else to try."""
    last = replace(state.decisions[-1], verdict=Verdict.ENDED)
    return replace(state, decisions=(*state.decisions[:-1], last))


def aimed(state: State, directions: Directions, rules: SearchRules) -> State | None:
    """With a direction and a search along it; None: the gradient is zero.

    Against the gradient, with nothing remembered, if the direction is no descent.
    """
    chosen = directions.choose(directions.pruned(state.products))
    slope = _slope(chosen)
    if not slope < 0:
        here = Point(step=0.0, loss=state.progress.loss, slope=slope)
        state = decided(state, here, Verdict.RESTARTED)
        chosen = directions.choose(state.products.keeping([GRADIENT]))
        slope = _slope(chosen)
    if not slope < 0:
        return None
    start = Point(step=0.0, loss=state.progress.loss, slope=slope)
    return replace(
        state,
        waiting=Waiting.TRIAL,
        products=chosen.products,
        along=chosen.along,
        formed=chosen.formed,
        search=rules.begin(start, _first_step(chosen.first_step, state, slope)),
    )


def _slope(chosen: Chosen) -> float:
    return chosen.products.of({GRADIENT: 1.0}, chosen.along)


def _first_step(how: FirstStep, state: State, slope: float) -> float:
    if how is FirstStep.UNIT:
        return 1.0
    if how is FirstStep.SAME_CHANGE and state.search is not None:
        return state.search.trial * state.search.start.slope / slope
    return min(1.0, 1.0 / state.absolute_sum)


def search_of(state: State) -> Search:
    if state.search is None:
        message = "a trial point belongs to a search"
        raise AssertionError(message)
    return state.search
