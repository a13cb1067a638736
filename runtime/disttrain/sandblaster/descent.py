"""The frame of all methods that go along a direction: evaluate, search the line, accept. Pure.

An evaluation costs one round trip for the trial point and one for the products of the gradient
that arrived: accepting the last point, forming the next direction and its first trial point are
one order.
"""

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum

from disttrain.sandblaster import operations as ops
from disttrain.sandblaster.directions import Chosen, Directions, FirstStep
from disttrain.sandblaster.line_search.point import Point, Stage
from disttrain.sandblaster.line_search.search import Search, SearchRules
from disttrain.sandblaster.method import Answer, End, Progress, Request
from disttrain.sandblaster.names import ARRIVED, DIRECTION, GRADIENT, PARAMETERS, TRIAL
from disttrain.sandblaster.operations import Combination, Operation
from disttrain.sandblaster.products import Products, of_gram


@dataclass(frozen=True, kw_only=True, slots=True)
class DescentRules:
    """When to stop, and how careful to be."""

    search: SearchRules
    gradient_tolerance: float = 0.0
    """Largest absolute value of a gradient's element that counts as zero."""
    change_tolerance: float = 0.0
    """Change of the loss that counts as none, against the larger of both losses and 1."""
    exact_every: int = 20
    """Iterations after which the products are computed from the vectors again."""


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


@dataclass(frozen=True, slots=True)
class Step:
    """What an answer leads to."""

    state: State
    request: Request | None = None
    """None: done."""


class Descent:
    """The transitions. Holds no state."""

    def __init__(self, rules: DescentRules, directions: Directions) -> None:
        self._rules = rules
        self._directions = directions

    def begin(self) -> Step:
        """The evaluation of the first point."""
        return Step(State(), _evaluation((ops.Copy(source=PARAMETERS, target=TRIAL),), ()))

    def advance(self, state: State, answer: Answer) -> Step:
        """What an answer leads to."""
        match state.waiting:
            case Waiting.FIRST:
                return self._first(state, answer)
            case Waiting.TRIAL:
                return self._tried(state, answer, _search_of(state))
            case Waiting.PRODUCTS:
                exact = of_gram(state.products.names, answer.scalars)
                return self._go_on(replace(state, products=exact, since_exact=0), ())
            case Waiting.LAST:
                return Step(state)

    def _first(self, state: State, answer: Answer) -> Step:
        square, absolute_sum, largest = answer.scalars
        begun = replace(
            state,
            progress=Progress(evaluations=1, loss=answer.loss, largest=largest),
            products=state.products.extended(GRADIENT, {GRADIENT: square}),
            absolute_sum=absolute_sum,
        )
        if not Point(step=0.0, loss=answer.loss, slope=square).is_finite:
            return _ended(begun, End.NOT_FINITE)
        if largest <= self._rules.gradient_tolerance:
            return _ended(begun, End.GRADIENT)
        return self._go_on(begun, (ops.Swap(first=GRADIENT, second=ARRIVED),))

    def _tried(self, state: State, answer: Answer, search: Search) -> Step:
        *dots, absolute_sum, largest = answer.scalars
        names = (*state.products.names, ARRIVED)
        products = state.products.extended(ARRIVED, dict(zip(names, dots, strict=True)))
        slope = products.of({ARRIVED: 1.0}, state.along)
        found = search.advanced(Point(step=search.trial, loss=answer.loss, slope=slope))
        seen = replace(state.progress, evaluations=state.progress.evaluations + 1)
        known = replace(state, search=found, progress=seen)
        if found.stage is Stage.TRYING:
            return Step(known, _evaluation((_trial(found.trial),), state.products.names))
        if found.stage is Stage.FAILED:
            return self._start_again(known)
        iteration = seen.iteration + 1
        progress = replace(seen, iteration=iteration, loss=answer.loss, largest=largest)
        there = replace(known, progress=progress, products=products, absolute_sum=absolute_sum)
        return self._accept(there, found.trial, state.progress.loss)

    def _accept(self, state: State, step: float, former_loss: float) -> Step:
        """The trial point becomes the point, the gradient that arrived its gradient."""
        kept = self._directions.remember(state.products, state.along, step)
        others = [name for name in kept.products.names if name != GRADIENT]
        moved = (
            *kept.operations,
            ops.Swap(first=GRADIENT, second=ARRIVED),
            ops.Swap(first=PARAMETERS, second=TRIAL),
        )
        found = replace(
            state,
            products=kept.products.keeping(others).renamed(ARRIVED, GRADIENT),
            since_exact=state.since_exact + 1,
        )
        if reason := end(self._rules, state.progress, former_loss):
            return replace(_ended(found, reason), request=Request(prepare=moved))
        if kept.is_doubtful or found.since_exact >= self._rules.exact_every:
            gram = ops.Gram(vectors=found.products.names)
            exact = replace(found, waiting=Waiting.PRODUCTS)
            return Step(exact, Request(prepare=(*moved, gram), settles=len(moved)))
        return self._go_on(found, moved)

    def _go_on(self, state: State, operations: tuple[Operation, ...]) -> Step:
        """Choose a direction and search along it."""
        chosen = self._directions.choose(self._directions.pruned(state.products))
        slope = _slope(chosen)
        if not slope < 0:
            chosen = self._directions.choose(state.products.keeping([GRADIENT]))
            slope = _slope(chosen)
        if not slope < 0:
            return replace(_ended(state, End.GRADIENT), request=Request(prepare=operations))
        start = Point(step=0.0, loss=state.progress.loss, slope=slope)
        search = self._rules.search.begin(start, _first_step(chosen.first_step, state, slope))
        forming = ops.Combine(target=DIRECTION, terms=chosen.formed)
        searching = replace(
            state,
            waiting=Waiting.TRIAL,
            products=chosen.products,
            along=chosen.along,
            formed=chosen.formed,
            search=search,
        )
        wanted = _evaluation((*operations, forming, _trial(search.trial)), chosen.products.names)
        return Step(searching, replace(wanted, settles=len(operations)))

    def _start_again(self, state: State) -> Step:
        """From the point accepted last, against its gradient, with nothing remembered."""
        if tuple(state.formed) == (GRADIENT,):
            return _ended(state, End.NO_DESCENT)
        return self._go_on(replace(state, products=state.products.keeping([GRADIENT])), ())


def end(rules: DescentRules, progress: Progress, former_loss: float) -> End | None:
    """The rule that ends a method at a point, if any. `former_loss`: at the point before it."""
    if progress.largest <= rules.gradient_tolerance:
        return End.GRADIENT
    size = max(abs(former_loss), abs(progress.loss), 1.0)
    if (
        math.isfinite(former_loss)
        and abs(former_loss - progress.loss) <= rules.change_tolerance * size
    ):
        return End.CHANGE
    return None


def _evaluation(prepare: tuple[Operation, ...], known: tuple[str, ...]) -> Request:
    """With the products of the gradient that arrives with what is known, and with itself."""
    dots = ops.Dots(vector=ARRIVED, others=(*known, ARRIVED))
    measure = (dots, ops.Extent(vector=ARRIVED))
    return Request(prepare=prepare, evaluates=True, measure=measure)


def _trial(step: float) -> Operation:
    return ops.Combine(target=TRIAL, terms={PARAMETERS: 1.0, DIRECTION: step})


def _ended(state: State, reason: End) -> Step:
    progress = replace(state.progress, end=reason)
    return Step(replace(state, waiting=Waiting.LAST, progress=progress))


def _slope(chosen: Chosen) -> float:
    return chosen.products.of({GRADIENT: 1.0}, chosen.along)


def _first_step(how: FirstStep, state: State, slope: float) -> float:
    if how is FirstStep.UNIT:
        return 1.0
    if how is FirstStep.SAME_CHANGE and state.search is not None:
        return state.search.trial * state.search.start.slope / slope
    return min(1.0, 1.0 / state.absolute_sum)


def _search_of(state: State) -> Search:
    if state.search is None:
        message = "a trial point belongs to a search"
        raise AssertionError(message)
    return state.search
