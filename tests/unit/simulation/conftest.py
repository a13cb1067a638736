"""Virtual time does not pass while others compute: one thread each is enough."""

import pytest


@pytest.fixture(autouse=True)
def alone(one_thread: None) -> None:
    """For all that are simulated."""
