"""Options of all tests, wherever among them pytest is started."""

from collections.abc import Iterator

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


@pytest.fixture
def one_thread() -> Iterator[None]:
    """PyTorch computes with one thread: sums have one order, and others have their core."""
    import torch  # noqa: PLC0415  Most tests do without the seconds that it takes.

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
