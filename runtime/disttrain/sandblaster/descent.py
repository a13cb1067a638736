"""The iteration scheme of full batches: go along a direction, search the line, accept. Pure.

An evaluation costs one round trip for the trial point and one for the products of the gradient
that arrived: accepting the last point, forming the next direction and its first trial point are
one command.
"""

import math
from dataclasses import dataclass, replace

from disttrain.sandblaster import operations as ops
from disttrain.sandblaster import scheme
from disttrain.sandblaster.directions import Directions
from disttrain.sandblaster.line_search import Point, Search, SearchRules, Stage
from disttrain.sandblaster.method import Answer, End, Progress, Request
from disttrain.sandblaster.operations import (
    ARRIVED,
    DIRECTION,
    GRADIENT,
    PARAMETERS,
    TRIAL,
    Operation,
)
from disttrain.sandblaster.products import of_gram
from disttrain.sandblaster.scheme import State, Step, Verdict, Waiting

_PATIENCE_AFTER_CUTS = 5
"""Steps in a row that change nothing, but were cut: see `State.cut_from`."""
PATIENCE = 3
"""The same of others: one step may change little far from a minimum."""


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


class Descent:
    """The transitions for batches that are all of the data; see `IterationScheme`."""

    def __init__(self, rules: DescentRules, directions: Directions) -> None:
        self._rules = replace(rules, search=directions.suited(rules.search))
        self._directions = directions

    def begin(self) -> Step:
        return Step(State(), _evaluation((ops.Copy(source=PARAMETERS, target=TRIAL),), ()))

    def advance(self, state: State, answer: Answer) -> Step:
        match state.waiting:
            case Waiting.FIRST:
                return self._first(state, answer)
            case Waiting.TRIAL:
                return self._tried(state, answer, scheme.search_of(state))
            case Waiting.PRODUCTS:
                exact = of_gram(state.products.names, answer.scalars)
                return self._go_on(replace(state, products=exact, since_exact=0), ())
            case Waiting.LAST | Waiting.BATCH:
                return Step(state)

    def _first(self, state: State, answer: Answer) -> Step:
        (square, absolute_sum, largest), before = answer.scalars, state.progress
        begun = replace(
            state,
            progress=replace(
                before, evaluations=before.evaluations + 1, loss=answer.loss, largest=largest
            ),
            products=state.products.extended(GRADIENT, {GRADIENT: square}),
            absolute_sum=absolute_sum,
        )
        start = Point(step=0.0, loss=answer.loss, slope=-square)
        begun = scheme.decided(begun, start, Verdict.BEGUN)
        if not start.is_finite:
            return scheme.ended(begun, End.NOT_FINITE)
        if largest <= self._rules.gradient_tolerance:
            return scheme.ended(begun, End.GRADIENT)
        return self._go_on(begun, (ops.Swap(first=GRADIENT, second=ARRIVED),))

    def _tried(self, state: State, answer: Answer, search: Search) -> Step:
        *dots, absolute_sum, largest = answer.scalars
        names = (*state.products.names, ARRIVED)
        products = state.products.extended(ARRIVED, dict(zip(names, dots, strict=True)))
        slope = products.of({ARRIVED: 1.0}, state.along)
        point = Point(step=search.trial, loss=answer.loss, slope=slope)
        known = scheme.searched(state, search, point)
        found, seen = scheme.search_of(known), known.progress
        if found.stage is Stage.TRYING:
            return Step(known, _evaluation((scheme.trial(found.trial),), state.products.names))
        if found.stage is Stage.FAILED:
            return self._start_again(known)
        iteration = seen.iteration + 1
        progress = replace(seen, iteration=iteration, loss=answer.loss, largest=largest)
        there = replace(known, progress=progress, products=products, absolute_sum=absolute_sum)
        return self._accept(there, found.trial, state.progress)

    def _accept(self, state: State, step: float, former: Progress) -> Step:
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
        found = _seen_of_cuts(found, former.largest)
        reason, restful = self._end(found, former.loss)
        found = replace(found, restful=restful)
        if reason is not None:
            return replace(scheme.ended(found, reason), request=Request(prepare=moved))
        if kept.is_inexact or found.since_exact >= self._rules.exact_every:
            gram = ops.Gram(vectors=found.products.names)
            exact = replace(found, waiting=Waiting.PRODUCTS)
            return Step(exact, Request(prepare=(*moved, gram), settles=len(moved)))
        return self._go_on(found, moved)

    def _end(self, state: State, former_loss: float) -> tuple[End | None, int]:
        """The reason to end at a new point, if any, and how many steps in a row changed nothing."""
        reason = end(self._rules, state.progress, former_loss)
        if reason is not End.CHANGE:
            return reason, 0
        restful = state.restful + 1
        if state.cut_from:
            return (End.NO_MINIMUM if restful >= _PATIENCE_AFTER_CUTS else None), restful
        return (End.CHANGE if restful >= PATIENCE else None), restful

    def _go_on(self, state: State, operations: tuple[Operation, ...]) -> Step:
        aimed = scheme.aimed(state, self._directions, self._rules.search)
        if aimed is None:
            return replace(scheme.ended(state, End.GRADIENT), request=Request(prepare=operations))
        forming = ops.Combine(target=DIRECTION, terms=aimed.formed)
        first = scheme.trial(scheme.search_of(aimed).trial)
        wanted = _evaluation((*operations, forming, first), aimed.products.names)
        return Step(aimed, replace(wanted, settles=len(operations)))

    def _start_again(self, state: State) -> Step:
        if tuple(state.formed) == (GRADIENT,):
            return scheme.ended(scheme.given_up(state), scheme.no_descent(state))
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


def _seen_of_cuts(state: State, former: float) -> State:
    """A new point's state. `former`: the gradient's largest element at the point before it."""
    cut_from = state.cut_from or (former if state.cuts else 0.0)
    is_over = state.progress.largest <= cut_from / 2
    return replace(state, cuts=0, cut_from=0.0 if is_over else cut_from)


def _evaluation(prepare: tuple[Operation, ...], known: tuple[str, ...]) -> Request:
    """With the products of the gradient that arrives with what is known, and with itself."""
    dots = ops.Dots(vector=ARRIVED, others=(*known, ARRIVED))
    measure = (dots, ops.Extent(vector=ARRIVED))
    return Request(prepare=prepare, evaluates=True, measure=measure)
