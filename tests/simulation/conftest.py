"""What simulated processes leave behind."""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import pytest

from disttrain.parameter_server.acknowledged import AcknowledgedFile
from disttrain.telemetry.record_file import RecordFile


@pytest.fixture(autouse=True)
def _files_of_the_killed_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The system does it for real processes; these would use up what this one may have open."""
    opened: list[AcknowledgedFile | RecordFile] = []

    def noting(init: Callable[..., None]) -> Callable[..., None]:
        @wraps(init)
        def noted(self: Any, *arguments: Any, **named: Any) -> None:
            init(self, *arguments, **named)
            opened.append(self)

        return noted

    for kind in (AcknowledgedFile, RecordFile):
        monkeypatch.setattr(kind, "__init__", noting(kind.__init__))
    yield
    for each in opened:
        each.close()
