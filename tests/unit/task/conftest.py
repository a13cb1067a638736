import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _import_state() -> Iterator[None]:
    """Loading a task puts its folder on sys.path for good; tests give it back."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("user_task_"):
            del sys.modules[name]
