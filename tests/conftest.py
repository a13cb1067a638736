"""Options of all tests, wherever among them pytest is started."""

import pytest


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
