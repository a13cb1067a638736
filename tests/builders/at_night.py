"""Which values of a test's parameters are tried before a landing."""

import signal
from collections.abc import Iterable
from typing import Any

import pytest

_STRIKES = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}


def others_at_night(first: object, *others: object) -> list[Any]:
    """For `parametrize`: all of them; before a landing the first one alone."""
    return [first, *at_night(*((each,) for each in others))]


def at_night(*rows: Iterable[object]) -> list[Any]:
    """For `parametrize` of several names: rows of values that are tried at night alone."""
    return [pytest.param(*row, marks=pytest.mark.nightly) for row in rows]


def strikes(processes: Iterable[object]) -> list[Any]:
    """For `parametrize` of a process and a signal: all pairs; each in one before a landing."""
    return [
        pytest.param(
            process,
            number,
            id=f"{process}-{said}",
            marks=() if place % len(_STRIKES) == turn else pytest.mark.nightly,
        )
        for place, process in enumerate(processes)
        for turn, (said, number) in enumerate(_STRIKES.items())
    ]


def seeds(blocks: int, *, before_a_push: int, before_landing: int) -> list[Any]:
    """For `parametrize` of a block of seeds: of all of them so many before a push and a landing."""
    marks: list[Any] = [(), pytest.mark.landing, pytest.mark.nightly]
    return [
        pytest.param(block, marks=marks[(block >= before_a_push) + (block >= before_landing)])
        for block in range(blocks)
    ]
