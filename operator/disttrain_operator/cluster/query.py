"""Which objects a list or a watch is about, and a request as it goes out. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from disttrain_operator.kinds import Kind

JSON = "application/json"
WATCH = "WATCH"
"""The verb of a GET that does not end; told apart in metrics."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """Objects of one kind."""

    kind: Kind
    namespace: str | None = None
    """None: in all namespaces."""
    labels: str = ""
    """A label selector."""
    fields: str = ""
    """A field selector."""
    metadata_only: bool = False
    """Whether nothing but the metadata matters."""

    @property
    def path(self) -> str:
        return self.kind.value.path(self.namespace)

    @property
    def parameters(self) -> dict[str, str]:
        selectors = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in selectors.items() if value}


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
