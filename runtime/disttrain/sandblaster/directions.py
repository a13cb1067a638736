"""Where to go from a point, given the inner products of what is remembered. Pure.

A rule works on combinations of the vectors that a table of products knows, and changes no vector
itself: it says what the shards are to do.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from enum import StrEnum

from disttrain.sandblaster.line_search import SearchRules, WolfeRules
from disttrain.sandblaster.operations import (
    ARRIVED,
    DIRECTION,
    GRADIENT,
    Combination,
    Operation,
    Scale,
)
from disttrain.sandblaster.products import Products


class FirstStep(StrEnum):
    """Where a line search begins."""

    UNIT = "unit"
    """At 1: the direction has its own length."""
    CAREFUL = "careful"
    """At min(1, 1 / the sum of the gradient's absolute values): nothing is known of lengths."""
    SAME_CHANGE = "same_change"
    """Where the slope promises what the last step's slope had promised."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """A direction."""

    formed: Combination
    """What the shards make the direction of."""
    products: Products
    """Of what there is once it is formed."""
    along: Combination
    """The direction, as a combination of the vectors in `products`."""
    first_step: FirstStep


@dataclass(frozen=True, kw_only=True, slots=True)
class Remembered:
    """What is kept of an iteration."""

    products: Products
    """Of what there is once `operations` are done, with the gradient that arrived."""
    operations: tuple[Operation, ...] = ()
    is_inexact: bool = False
    """So much cancelled that the products are to be computed from the vectors."""


class Directions(ABC):
    """A rule for directions."""

    @abstractmethod
    def choose(self, products: Products) -> Chosen:
        """A direction; against the gradient if that is the only vector."""

    @abstractmethod
    def remember(self, products: Products, along: Combination, step: float) -> Remembered:
        """What to keep as the point `step` times the direction away is accepted."""

    def pruned(self, products: Products) -> Products:
        """Without what turned out to be useless."""
        return products

    def suited(self, search: SearchRules) -> SearchRules:
        """The line search, made as exact as the directions need it."""
        return search


class SteepestDescent(Directions):
    """Against the gradient: gradient descent with a line search."""

    def choose(self, products: Products) -> Chosen:
        against = {GRADIENT: -1.0}
        known = DIRECTION in products.names
        first_step = FirstStep.SAME_CHANGE if known else FirstStep.CAREFUL
        formed = products.keeping([GRADIENT]).defined(DIRECTION, against)
        return Chosen(
            formed=against, products=formed, along={DIRECTION: 1.0}, first_step=first_step
        )

    def remember(self, products: Products, along: Combination, step: float) -> Remembered:
        """See `Directions.remember`: that there was a direction, from which the step is known."""
        del along, step
        return Remembered(products=products)


_CURVATURE = 0.1
"""The slope that is flat enough, as a fraction of the first one (Nocedal and Wright, p. 122)."""
_ARRIVED: Combination = {ARRIVED: 1.0}
_GRADIENT: Combination = {GRADIENT: 1.0}


class ConjugateGradient(Directions):
    """Against the gradient, with some of the last direction.

    Polak and Ribiere's, with a factor of at least 0: Nocedal and Wright, Numerical Optimization
    (2006), equation 5.45.
    """

    def choose(self, products: Products) -> Chosen:
        known = DIRECTION in products.names
        formed = {GRADIENT: -1.0, DIRECTION: 1.0} if known else {GRADIENT: -1.0}
        return Chosen(
            formed=formed,
            products=products.defined(DIRECTION, formed),
            along={DIRECTION: 1.0},
            first_step=FirstStep.SAME_CHANGE if known else FirstStep.CAREFUL,
        )

    def remember(self, products: Products, along: Combination, step: float) -> Remembered:
        """See `Directions.remember`: the direction, times its share in the next one."""
        del along, step
        change = {ARRIVED: 1.0, GRADIENT: -1.0}
        share = products.of(_ARRIVED, change) / products.of(_GRADIENT, _GRADIENT)
        factor = max(0.0, share)
        return Remembered(
            products=products.defined(DIRECTION, {DIRECTION: factor}),
            operations=(Scale(vector=DIRECTION, factor=factor),),
        )

    def suited(self, search: SearchRules) -> SearchRules:
        """See `Directions.suited`: a direction is conjugate to the last one from its minimum."""
        if isinstance(search, WolfeRules) and search.curvature > _CURVATURE:
            return replace(search, curvature=_CURVATURE)
        return search
