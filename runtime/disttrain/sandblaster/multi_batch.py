"""L-BFGS on batches that are smaller than the data, one batch for each iteration. Pure.

Multi-batch L-BFGS (Berahas, Nocedal and Takac 2016). A line search stays on its batch. Its last
evaluation knows the gradient at the new point over the samples that the next batch shares, so that
the one that begins the next batch is of the others alone. A pair's change of the gradient is of
shared samples at both points. Nothing follows by linearity there, so that the products of a new
pair are computed from its vectors.
"""

import math
from dataclasses import replace

from disttrain.sandblaster import descent, scheme
from disttrain.sandblaster import operations as ops
from disttrain.sandblaster.descent import DescentRules
from disttrain.sandblaster.lbfgs import Lbfgs, mixed, next_slot, slots
from disttrain.sandblaster.line_search import Point, Search, Stage
from disttrain.sandblaster.method import Answer, End, Part, Request
from disttrain.sandblaster.operations import (
    AFTER,
    ARRIVED,
    BEFORE,
    DIRECTION,
    GRADIENT,
    KEPT,
    PARAMETERS,
    TRIAL,
    Combination,
    Operation,
    pair,
)
from disttrain.sandblaster.scheme import State, Step, Verdict, Waiting


class MultiBatch:
    """The transitions; see `IterationScheme`."""

    def __init__(self, rules: DescentRules, directions: Lbfgs, patience: int = 5) -> None:
        """`patience`: batches in a row that must give a reason to end, which one may by chance."""
        self._rules = rules
        self._directions = directions
        self._patience = patience

    def begin(self) -> Step:
        start = (ops.Copy(source=PARAMETERS, target=TRIAL),)
        return _met_by(State(waiting=Waiting.BATCH), start, Part.WHOLE)

    def advance(self, state: State, answer: Answer) -> Step:
        match state.waiting:
            case Waiting.BATCH:
                return self._met(_with_products(state, answer), answer.loss)
            case Waiting.TRIAL:
                return self._tried(state, answer, scheme.search_of(state))
            case _:
                return Step(state)

    def _met(self, state: State, loss: float) -> Step:
        """A batch was evaluated at the point for the first time."""
        seen = replace(state.progress, loss=loss, evaluations=state.progress.evaluations + 1)
        square = state.products.of({GRADIENT: 1.0}, {GRADIENT: 1.0})
        start = Point(step=0.0, loss=loss, slope=-square)
        met = scheme.decided(replace(state, progress=seen), start, Verdict.BEGUN)
        if not start.is_finite:
            return scheme.ended(met, End.NOT_FINITE)
        small = seen.largest <= self._rules.gradient_tolerance
        aimed = None if small else scheme.aimed(met, self._directions, self._rules.search)
        if aimed is None:
            # The next batch is met where this one was: what they share has been evaluated there.
            shared = (ops.Swap(first=BEFORE, second=AFTER),)
            return self._rested(met, shared, End.GRADIENT, Part.NEW)
        swaps = (ops.Swap(first=GRADIENT, second=ARRIVED), ops.Swap(first=KEPT, second=AFTER))
        return _searched_by(aimed, (*swaps, _formed(aimed)))

    def _tried(self, state: State, answer: Answer, search: Search) -> Step:
        slope, *overlap = answer.scalars
        point = Point(step=search.trial, loss=answer.loss, slope=slope)
        known = scheme.searched(state, search, point)
        found = scheme.search_of(known)
        if found.stage is Stage.TRYING:
            return _searched_by(known, ())
        if found.stage is Stage.FAILED:
            return self._start_again(known)
        return self._accept(known, point, (overlap[0], overlap[1]))

    def _accept(self, state: State, point: Point, overlap: tuple[float, float]) -> Step:
        """The trial point becomes the point. `overlap`: its slopes there and where it was kept."""
        there = self._moved(state, point)
        moved: tuple[Operation, ...] = (ops.Copy(source=TRIAL, target=PARAMETERS),)
        if there.restful >= self._patience:
            reason = End.NO_MINIMUM if state.cuts else End.CHANGE
            return replace(scheme.ended(there, reason), request=Request(prepare=moved))
        slot, gone = next_slot(slots(state.products), self._directions.history)
        making = self._pair(state, point.step, overlap, slot)
        others = [one for one in state.products.names if one != GRADIENT and one not in gone]
        found = replace(there, products=state.products.keeping(others), newest=slot)
        # What the batches share comes along: it is known where the next batch begins.
        accepting = (*making, ops.Swap(first=BEFORE, second=AFTER), *moved)
        prepare = (*accepting, *_rows(slot, others))
        return _met_by(_on_next(found), prepare, Part.NEW, len(accepting))

    def _moved(self, state: State, point: Point) -> State:
        """One iteration further. A change that counts as none is a reason to end."""
        iteration = state.progress.iteration + 1
        progress = replace(state.progress, iteration=iteration, loss=point.loss)
        # The gradient's tolerance is for a batch that is met.
        changed = replace(progress, largest=math.inf)
        former_loss = scheme.search_of(state).start.loss
        rests = descent.end(self._rules, changed, former_loss) is not None
        restful = state.restful + 1 if rests else 0
        return replace(state, progress=progress, restful=restful, cuts=0)

    def _pair(
        self, state: State, step: float, overlap: tuple[float, float], slot: int
    ) -> tuple[Operation, ...]:
        there, here = overlap
        expected = -step * step * scheme.search_of(state).start.slope
        share = self._directions.share_of_change(state.products, step * (there - here), expected)
        change: Combination = {AFTER: 1.0, KEPT: -1.0}
        step_name, change_name = pair(slot)
        mix = change if share == 1.0 else mixed(change, share, step)
        return (
            ops.Combine(target=step_name, terms={DIRECTION: step}),
            ops.Combine(target=change_name, terms=mix),
        )

    def _start_again(self, state: State) -> Step:
        """Against the gradient on the same batch, or else where it is on the next one."""
        if tuple(state.formed) == (GRADIENT,):
            back = (ops.Copy(source=PARAMETERS, target=TRIAL),)
            return self._rested(scheme.given_up(state), back, scheme.no_descent(state), Part.WHOLE)
        alone = replace(state, products=state.products.keeping([GRADIENT]))
        aimed = scheme.aimed(alone, self._directions, self._rules.search)
        if aimed is None:
            return scheme.ended(alone, End.NO_DESCENT)
        return _searched_by(aimed, (_formed(aimed),))

    def _rested(
        self, state: State, operations: tuple[Operation, ...], reason: End, part: Part
    ) -> Step:
        restful = state.restful + 1
        if restful >= self._patience:
            return scheme.ended(state, reason)
        pairs = [name for name in state.products.names if name != GRADIENT]
        left = replace(state, restful=restful, products=state.products.keeping(pairs), newest=None)
        return _met_by(_on_next(left), operations, part)


def _on_next(state: State) -> State:
    return replace(state, batch=state.batch + 1)


def _met_by(state: State, prepare: tuple[Operation, ...], part: Part, settles: int = 0) -> Step:
    """The evaluation that begins a batch, with the products of its gradient with all pairs."""
    newest = () if state.newest is None else pair(state.newest)
    dots = ops.Dots(vector=ARRIVED, others=(*state.products.names, *newest, ARRIVED))
    request = Request(
        prepare=prepare,
        settles=settles,
        evaluates=True,
        measure=(dots, ops.Extent(vector=ARRIVED)),
        batch=state.batch,
        part=part,
    )
    return Step(replace(state, waiting=Waiting.BATCH), request)


def _with_products(state: State, answer: Answer) -> State:
    *dots, absolute_sum, largest = answer.scalars
    scalars, products = iter(dots), state.products
    names = [*(() if state.newest is None else pair(state.newest)), GRADIENT]
    for name in names:
        row = (*products.names, name)
        products = products.extended(name, {other: next(scalars) for other in row})
    progress = replace(state.progress, largest=largest)
    return replace(
        state, products=products, absolute_sum=absolute_sum, newest=None, progress=progress
    )


def _searched_by(state: State, operations: tuple[Operation, ...]) -> Step:
    """The evaluation of a trial point, with the slopes over the batch and what the next shares."""
    trial = scheme.trial(scheme.search_of(state).trial)
    slopes = ops.Dots(vector=DIRECTION, others=(ARRIVED, AFTER, KEPT))
    request = Request(
        prepare=(*operations, trial), evaluates=True, measure=(slopes,), batch=state.batch
    )
    return Step(state, request)


def _rows(slot: int, others: list[str]) -> tuple[Operation, ...]:
    step, change = pair(slot)
    return (
        ops.Dots(vector=step, others=(*others, step)),
        ops.Dots(vector=change, others=(*others, step, change)),
    )


def _formed(state: State) -> Operation:
    return ops.Combine(target=DIRECTION, terms=state.formed)
