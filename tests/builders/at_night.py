"""Which values of a test's parameter are tried before a landing."""

from typing import Any

import pytest


def others_at_night(first: object, *others: object) -> list[Any]:
    """For `parametrize`: all of them; before a landing the first one alone."""
    return [first, *(pytest.param(each, marks=pytest.mark.nightly) for each in others)]
