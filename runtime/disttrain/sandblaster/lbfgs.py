"""L-BFGS by inner products alone: the two-loop recursion costs no round trip. Pure.

The recursion (Nocedal and Wright, Numerical Optimization (2006), algorithm 7.4) adds multiples of
the history vectors and the gradient. So its result is a combination of them, whose factors follow
from their inner products.
"""

import math
from dataclasses import dataclass

from disttrain.sandblaster.directions import Chosen, FirstStep, Remembered
from disttrain.sandblaster.names import ARRIVED, DIRECTION, GRADIENT, pair
from disttrain.sandblaster.operations import Combination, Combine
from disttrain.sandblaster.products import Products

_LEAST_CURVATURE = 1e-10
"""Cosine between step and change of the gradient; a pair with less says nothing about curvature."""
_NEW_STEP, _NEW_CHANGE = "new step", "new change"
"""What the newest pair is called until the oldest one has left."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lbfgs:
    """Directions by the last few steps and changes of the gradient."""

    history: int = 10
    """Pairs that are remembered."""
    rounding: float = 2.0**-52
    """Relative error of an inner product that a shard computes."""
    tolerance: float = 1e-8
    """Relative error of a new pair's products from which on they are computed exactly."""

    def choose(self, products: Products) -> Chosen:
        """See `Directions.choose`."""
        along = two_loop(products, slots(products))
        first_step = FirstStep.UNIT if slots(products) else FirstStep.CAREFUL
        return Chosen(formed=along, products=products, along=along, first_step=first_step)

    def remember(self, products: Products, along: Combination, step: float) -> Remembered:
        """See `Directions.remember`: the newest pair takes the place of the oldest."""
        move = {name: step * factor for name, factor in along.items()}
        change = {ARRIVED: 1.0, GRADIENT: -1.0}
        is_doubtful = any(
            self._cancels(products, left, right)
            for left, right in ((move, move), (move, change), (change, change))
        )
        used = slots(products)
        slot = free_slot(used, self.history)
        left_over = [name for name in products.names if slot not in used or name not in pair(slot)]
        known = products.defined(_NEW_STEP, move).defined(_NEW_CHANGE, change)
        kept = known.keeping([*left_over, _NEW_STEP, _NEW_CHANGE])
        step_name, change_name = pair(slot)
        kept = kept.renamed(_NEW_STEP, step_name).renamed(_NEW_CHANGE, change_name)
        return Remembered(
            products=kept,
            operations=(
                Combine(target=step_name, terms={DIRECTION: step}),
                Combine(target=change_name, terms=change),
            ),
            is_doubtful=is_doubtful,
        )

    def pruned(self, products: Products) -> Products:
        """See `Directions.pruned`: without pairs along which the gradient did not grow."""
        bad = {
            name for slot in slots(products) if not _curves(products, slot) for name in pair(slot)
        }
        kept = [name for name in products.names if name not in bad]
        return products.keeping(kept) if bad else products

    def _cancels(self, products: Products, left: Combination, right: Combination) -> bool:
        error = self.rounding * products.magnitude(left, right)
        return error > self.tolerance * abs(products.of(left, right))


def slots(products: Products) -> list[int]:
    """The slots of the pairs in a table, the oldest first."""
    return [int(name[1:]) for name in products.names if name[0] == "s" and name[1:].isdecimal()]


def free_slot(used: list[int], history: int) -> int:
    """The slot of the next pair: one that nobody has, or else the oldest's, which comes first."""
    return next((slot for slot in range(history) if slot not in used), used[0] if used else 0)


def has_curvature(product: float, squares: float) -> bool:
    """Whether the gradient grew along a step. `squares`: of the pair's lengths, multiplied."""
    return math.isfinite(product) and product > _LEAST_CURVATURE * math.sqrt(max(0.0, squares))


def two_loop(products: Products, pairs: list[int]) -> Combination:
    """The direction that the pairs, the oldest first, make of the gradient."""
    direction: Combination = {GRADIENT: -1.0}
    shares: dict[int, float] = {}
    for slot in reversed(pairs):
        step, change = pair(slot)
        shares[slot] = products.of({step: 1.0}, direction) / _between(products, step, change)
        direction[change] = direction.get(change, 0.0) - shares[slot]
    if pairs:
        step, change = pair(pairs[-1])
        length = _between(products, step, change) / _between(products, change, change)
        direction = {name: factor * length for name, factor in direction.items()}
    for slot in pairs:
        step, change = pair(slot)
        back = products.of({change: 1.0}, direction) / _between(products, step, change)
        direction[step] = direction.get(step, 0.0) + shares[slot] - back
    return direction


def _between(products: Products, left: str, right: str) -> float:
    return products.of({left: 1.0}, {right: 1.0})


def _curves(products: Products, slot: int) -> bool:
    step, change = pair(slot)
    squares = _between(products, step, step) * _between(products, change, change)
    return has_curvature(_between(products, step, change), squares)
