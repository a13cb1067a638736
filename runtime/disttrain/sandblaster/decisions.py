"""What was decided at each evaluation, for people who ask why a method goes as it goes. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from disttrain.sandblaster.line_search.point import Stage
from disttrain.sandblaster.line_search.search import Search
from disttrain.sandblaster.line_search.strong_wolfe import WolfeSearch

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
