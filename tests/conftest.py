"""Options of all tests, wherever among them pytest is started."""

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cluster",
        choices=("own", "existing"),
        default="own",
        help="own: end-to-end tests start one on this machine; existing: the one of KUBECONFIG",
    )
    parser.addoption(
        "--require-cluster",
        action="store_true",
        help="end-to-end tests fail, instead of being skipped, where no cluster can be started",
    )
