"""L-BFGS one operation at a time: every command is a single operation, every product is asked for.

What a textbook says (Nocedal and Wright, Numerical Optimization (2006), algorithms 7.4 and 7.5),
without any of the tricks of `lbfgs`: the readable reference, and what the other one is tested by.
Its state is that of a generator, which cannot be written down.
"""

from collections.abc import Generator
from dataclasses import replace
from typing import TypeAlias

from disttrain.sandblaster import descent, lbfgs
from disttrain.sandblaster import operations as ops
from disttrain.sandblaster.descent import DescentRules
from disttrain.sandblaster.lbfgs import WeakPairs
from disttrain.sandblaster.line_search import Point, Stage
from disttrain.sandblaster.method import Answer, End, Progress, Request
from disttrain.sandblaster.operations import (
    ARRIVED,
    DIRECTION,
    GRADIENT,
    PARAMETERS,
    TRIAL,
    Operation,
    pair,
)

Ask: TypeAlias = Generator[Request, Answer, float]
"""Asks for one operation or evaluation after the other; returns a number."""
Command: TypeAlias = Generator[Request, Answer, None]
"""The same without a number."""


class PlainLbfgs:
    """One run; see `batch_method.Method`."""

    def __init__(
        self, rules: DescentRules, history: int = 10, weak_pairs: WeakPairs = WeakPairs.SKIP
    ) -> None:
        self.progress = Progress()
        self._rules = rules
        self._history = history
        self._weak_pairs = weak_pairs
        self._pairs: list[int] = []
        """Slots of the history, the oldest first."""
        self._restful = 0
        """Steps in a row that changed nothing."""
        self._run = self._minimise()

    def advance(self, answer: Answer | None) -> Request | None:
        try:
            return next(self._run) if answer is None else self._run.send(answer)
        except StopIteration:
            return None

    def _minimise(self) -> Command:
        yield _one(ops.Copy(source=PARAMETERS, target=TRIAL))
        loss = yield from self._evaluate()
        yield _one(ops.Copy(source=ARRIVED, target=GRADIENT))
        yield from self._arrive(loss)
        while self.progress.end is None:
            yield from self._form_direction()
            slope = yield from _dot(GRADIENT, DIRECTION)
            step = (yield from self._search(slope)) if slope < 0 else 0.0
            if step == 0.0:
                self._give_up()

    def _give_up(self) -> None:
        """Against the gradient next, unless that was the direction."""
        if not self._pairs:
            self.progress = replace(self.progress, end=End.NO_DESCENT)
        self._pairs.clear()

    def _evaluate(self) -> Ask:
        answer = yield Request(evaluates=True)
        self.progress = replace(self.progress, evaluations=self.progress.evaluations + 1)
        return answer.loss

    def _arrive(self, loss: float) -> Command:
        """See what the accepted point is like."""
        answer = yield _one(ops.Extent(vector=GRADIENT))
        former, (self._absolute_sum, largest) = self.progress.loss, answer.scalars
        self.progress = replace(self.progress, loss=loss, largest=largest)
        reason = descent.end(self._rules, self.progress, former)
        self._restful = self._restful + 1 if reason is End.CHANGE else 0
        if reason is End.CHANGE and self._restful < descent.PATIENCE:
            reason = None
        self.progress = replace(self.progress, end=reason)

    def _form_direction(self) -> Command:
        """The two loops."""
        yield _one(ops.Copy(source=GRADIENT, target=DIRECTION))
        yield _one(ops.Scale(vector=DIRECTION, factor=-1.0))
        shares: dict[int, float] = {}
        for slot in reversed(self._pairs):
            step, change = pair(slot)
            along, product = (yield from _dot(step, DIRECTION)), (yield from _dot(step, change))
            shares[slot] = along / product
            yield _add(-shares[slot], change, to=DIRECTION)
        if self._pairs:
            step, change = pair(self._pairs[-1])
            product, square = (yield from _dot(step, change)), (yield from _dot(change, change))
            yield _one(ops.Scale(vector=DIRECTION, factor=product / square))
        for slot in self._pairs:
            step, change = pair(slot)
            back, product = (yield from _dot(change, DIRECTION)), (yield from _dot(step, change))
            factor = shares[slot] - back / product
            yield _add(factor, step, to=DIRECTION)

    def _search(self, slope: float) -> Ask:
        """How far it went to the next point; 0 if none is lower."""
        first_step = 1.0 if self._pairs else min(1.0, 1.0 / self._absolute_sum)
        start = Point(step=0.0, loss=self.progress.loss, slope=slope)
        search, point = self._rules.search.begin(start, first_step), start
        while search.stage is Stage.TRYING:
            yield _one(ops.Copy(source=PARAMETERS, target=TRIAL))
            yield _add(search.trial, DIRECTION, to=TRIAL)
            loss = yield from self._evaluate()
            slope = yield from _dot(ARRIVED, DIRECTION)
            point = Point(step=search.trial, loss=loss, slope=slope)
            search = search.advanced(point)
        if search.stage is Stage.FAILED:
            return 0.0
        yield from self._accept(point)
        return point.step

    def _accept(self, point: Point) -> Command:
        yield from self._remember(point.step)
        yield _one(ops.Copy(source=ARRIVED, target=GRADIENT))
        yield _one(ops.Copy(source=TRIAL, target=PARAMETERS))
        self.progress = replace(self.progress, iteration=self.progress.iteration + 1)
        yield from self._arrive(point.loss)

    def _remember(self, length: float) -> Command:
        slot, gone = lbfgs.next_slot(self._pairs, self._history)
        self._pairs = [one for one in self._pairs if not gone.intersection(pair(one))]
        step, change = pair(slot)
        yield _one(ops.Copy(source=DIRECTION, target=step))
        yield _one(ops.Scale(vector=step, factor=length))
        yield _one(ops.Copy(source=ARRIVED, target=change))
        yield _add(-1.0, GRADIENT, to=change)
        if self._pairs and self._weak_pairs is WeakPairs.DAMP:
            yield from self._damp(step, change, length)
        product = yield from _dot(step, change)
        squares = (yield from _dot(step, step)) * (yield from _dot(change, change))
        if lbfgs.has_curvature(product, squares):
            self._pairs.append(slot)

    def _damp(self, step: str, change: str, length: float) -> Command:
        product, slope = (yield from _dot(step, change)), (yield from _dot(step, GRADIENT))
        share = lbfgs.share_of_change(product, -length * slope)
        yield _one(ops.Scale(vector=change, factor=share))
        yield _add(-length * (1.0 - share), GRADIENT, to=change)


def _one(operation: Operation) -> Request:
    return Request(prepare=(operation,))


def _add(factor: float, source: str, *, to: str) -> Request:
    return _one(ops.Combine(target=to, terms={to: 1.0, source: factor}))


def _dot(left: str, right: str) -> Ask:
    answer = yield _one(ops.Dots(vector=left, others=(right,)))
    return answer.scalars[0]
