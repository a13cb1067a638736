"""L-BFGS by inner products alone: the two-loop recursion costs no round trip. Pure.

The recursion (Nocedal and Wright, Numerical Optimization (2006), algorithm 7.4) adds multiples of
the history vectors and the gradient. So its result is a combination of them, whose factors follow
from their inner products.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from disttrain.sandblaster.directions import Chosen, Directions, FirstStep, Remembered
from disttrain.sandblaster.operations import (
    ARRIVED,
    DIRECTION,
    GRADIENT,
    Combination,
    Combine,
    pair,
)
from disttrain.sandblaster.products import Products

_NEW_STEP, _NEW_CHANGE = "new step", "new change"
"""What the newest pair is called until the oldest one has left."""


_LEAST_COSINE = 1e-10
"""Between step and change of the gradient; a pair with less says nothing about curvature."""
_LEAST_SHARE = 0.2
"""Of the curvature that the last direction was made with (Powell 1978; Nocedal and Wright,
Numerical Optimization (2006), procedure 18.2)."""


class WeakPairs(StrEnum):
    """What becomes of pairs without enough curvature."""

    SKIP = "skip"
    """They are forgotten."""
    DAMP = "damp"
    """The change of their gradient is mixed with what was expected of it: Powell's damping."""


def has_curvature(product: float, squares: float) -> bool:
    """Whether the gradient grew along a step. `squares`: of the pair's lengths, multiplied."""
    return math.isfinite(product) and product > _LEAST_COSINE * math.sqrt(max(0.0, squares))


def share_of_change(product: float, expected: float) -> float:
    """How much of the change of the gradient is kept, from 0 to 1; the rest is what was expected.

    `product`: of step and change. `expected`: of the step and the change that the matrix of the
    last direction foretold, which is positive. The mix has `_LEAST_SHARE` of `expected` at least.
    """
    if not product < _LEAST_SHARE * expected:
        return 1.0
    return (1 - _LEAST_SHARE) * expected / (expected - product)


@dataclass(frozen=True, kw_only=True, slots=True)
class Lbfgs(Directions):
    """Directions by the last few steps and changes of the gradient."""

    history: int = 10
    """Pairs that are remembered."""
    rounding: float = 2.0**-52
    """Relative error of an inner product that a shard computes."""
    tolerance: float = 1e-8
    """Relative error of a new pair's products from which on they are computed exactly."""
    weak_pairs: WeakPairs = WeakPairs.SKIP

    def choose(self, products: Products) -> Chosen:
        along = two_loop(products, slots(products))
        first_step = FirstStep.UNIT if slots(products) else FirstStep.CAREFUL
        return Chosen(formed=along, products=products, along=along, first_step=first_step)

    def remember(self, products: Products, along: Combination, step: float) -> Remembered:
        """See `Directions.remember`: the newest pair takes the place of the oldest."""
        move = {name: step * factor for name, factor in along.items()}
        change = self._change(products, move, step)
        is_inexact = any(
            self._cancels(products, left, right)
            for left, right in ((move, move), (move, change), (change, change))
        )
        slot, gone = next_slot(slots(products), self.history)
        left_over = [name for name in products.names if name not in gone]
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
            is_inexact=is_inexact,
        )

    def pruned(self, products: Products) -> Products:
        """See `Directions.pruned`: without pairs along which the gradient did not grow."""
        bad = {
            name for slot in slots(products) if not _curves(products, slot) for name in pair(slot)
        }
        kept = [name for name in products.names if name not in bad]
        return products.keeping(kept) if bad else products

    def share_of_change(self, products: Products, product: float, expected: float) -> float:
        """See `share_of_change`. Before there is a pair nothing is expected."""
        if self.weak_pairs is WeakPairs.SKIP or not slots(products):
            return 1.0
        return share_of_change(product, expected)

    def _change(self, products: Products, move: Combination, step: float) -> Combination:
        change = {ARRIVED: 1.0, GRADIENT: -1.0}
        # What the matrix of a direction makes of it is the gradient again, with the other sign.
        expected = -step * products.of({GRADIENT: 1.0}, move)
        share = self.share_of_change(products, products.of(move, change), expected)
        return change if share == 1.0 else mixed(change, share, step)

    def _cancels(self, products: Products, left: Combination, right: Combination) -> bool:
        error = self.rounding * products.magnitude(left, right)
        return error > self.tolerance * abs(products.of(left, right))


def slots(products: Products) -> list[int]:
    return [int(name[1:]) for name in products.names if name[0] == "s" and name[1:].isdecimal()]


def next_slot(used: list[int], history: int) -> tuple[int, set[str]]:
    """The slot of the next pair, and the vectors of the oldest ones, which are forgotten for it.

    `used`: the oldest first; more than `history` if that was more before.
    """
    most = max(0, len(used) - history + 1)
    gone, kept = used[:most], used[most:]
    slot = next(slot for slot in range(history) if slot not in kept)
    return slot, {name for one in gone for name in pair(one)}


def mixed(change: Combination, share: float, step: float) -> Combination:
    """A change of the gradient and what was expected of it, `-step` times the gradient."""
    kept = {name: share * factor for name, factor in change.items()}
    kept[GRADIENT] = kept.get(GRADIENT, 0.0) - (1.0 - share) * step
    return kept


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
