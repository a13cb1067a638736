"""Nonlinear conjugate gradients, Polak and Ribiere's with a factor of at least 0. Pure.

Nocedal and Wright, Numerical Optimization (2006), equation 5.45.
"""

from dataclasses import replace

from disttrain.sandblaster.directions import Chosen, Directions, FirstStep, Remembered
from disttrain.sandblaster.line_search.search import SearchRules
from disttrain.sandblaster.line_search.strong_wolfe import WolfeRules
from disttrain.sandblaster.names import ARRIVED, DIRECTION, GRADIENT
from disttrain.sandblaster.operations import Combination, Scale
from disttrain.sandblaster.products import Products

_CURVATURE = 0.1
"""The slope that is flat enough, as a fraction of the first one (Nocedal and Wright, p. 122)."""
_ARRIVED: Combination = {ARRIVED: 1.0}
_GRADIENT: Combination = {GRADIENT: 1.0}


class ConjugateGradient(Directions):
    """Against the gradient, with some of the last direction."""

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
