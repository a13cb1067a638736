"""A request as it goes out. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from disttrain_operator import json_text

JSON = "application/json"
WATCH = "WATCH"
"""The verb of a GET that does not end; told apart in metrics."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of the API server."""

    verb: str
    path: str
    parameters: Mapping[str, str]
    accept: str = JSON
    content: str = JSON
    """Type of the body."""
    body: dict[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"

    @property
    def is_watch(self) -> bool:
        return self.verb == WATCH

    @property
    def method(self) -> str:
        return "GET" if self.is_watch else self.verb

    @property
    def headers(self) -> dict[str, str]:
        return {"Accept": self.accept, "Content-Type": self.content}

    @property
    def data(self) -> bytes | None:
        if self.body is None:
            return None
        return json_text.write(self.body)
