"""What a batch method is to those who carry it out: answers in, requests out."""

from dataclasses import dataclass
from enum import StrEnum

from disttrain.sandblaster.operations import Operation


class Part(StrEnum):
    """Of which samples the gradient is wanted."""

    WHOLE = "whole"
    """All of the batch."""
    NEW = "new"
    """Those that the batch before did not have. Of the others it is known: the latest evaluation
    was at the same point, and had them as the overlap with its next batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What is to be done before the method can go on."""

    prepare: tuple[Operation, ...] = ()
    """One command to all shards."""
    settles: int = 0
    """So many of these operations, the first ones, make the point accepted last the parameters;
    without answers of their own. 0: it is there already."""
    evaluates: bool = False
    """Then the loss over the batch at the trial point is wanted, and its gradient as `arrived`."""
    measure: tuple[Operation, ...] = ()
    """Then, with the gradient in place, this command."""
    batch: int = 0
    """Which one, if batches are smaller than the data."""
    part: Part = Part.WHOLE


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came of a request."""

    scalars: tuple[float, ...] = ()
    """Of `prepare` and then of `measure`, over all shards."""
    loss: float = 0.0
    """Mean over the batch, if it was evaluated."""


class End(StrEnum):
    """Why a method is done."""

    GRADIENT = "gradient"
    """No element of the gradient is larger than the tolerance."""
    CHANGE = "change"
    """The loss changed by no more than the tolerance."""
    NO_DESCENT = "no_descent"
    """Not even against the gradient is the loss lower, as far as numbers can tell."""
    NOT_FINITE = "not_finite"
    """The loss or the gradient at the first point is no number."""
    NO_MINIMUM = "no_minimum"
    """The loss falls without an end, or up to points where it is no number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a method is."""

    iteration: int = 0
    """Points accepted after the first one."""
    evaluations: int = 0
    """Of the loss and the gradient over the batch."""
    loss: float = float("inf")
    """At the point accepted last."""
    largest: float = float("inf")
    """The largest absolute value of the gradient's elements there."""
    non_finite: int = 0
    """Trial points whose loss or slope is no number."""
    end: End | None = None
