"""Which API server is meant, and what is asked of it: one request, or lines of a long answer."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

Object = dict[str, Any]
"""A Kubernetes object or another answer of the API server, as far as anything here looks at it."""


class Verb(StrEnum):
    """What is asked, by the names in Kubernetes' access rules."""

    GET = "get"
    LIST = "list"
    WATCH = "watch"
    CREATE = "create"
    PATCH = "patch"
    DELETE = "delete"

    @property
    def method(self) -> str:
        """The method of HTTP."""
        own = {Verb.CREATE: "POST", Verb.PATCH: "PATCH", Verb.DELETE: "DELETE"}
        return own.get(self, "GET")


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request."""

    verb: Verb
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Object | None = None
    accept: str = "application/json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What a person says about it; None everywhere means what kubectl would take."""

    kubeconfig: Path | None = None
    """File to read instead of those in $KUBECONFIG, or of ~/.kube/config."""

    context: str | None = None
    """Context of the kubeconfig instead of the current one."""

    namespace: str | None = None
    """Namespace instead of the context's."""


class Api(Protocol):
    """An API server that somebody has access to. May be used from any thread."""

    @property
    def namespace(self) -> str:
        """The namespace of the kubeconfig's context."""

    def call(self, request: Request) -> Object:
        """Return the answer, which is JSON. Raises ClusterError or Unreachable."""

    def text(self, request: Request) -> str:
        """Return an answer that is text. Raises the same."""

    def lines(self, request: Request) -> AbstractContextManager[Iterator[str]]:
        """Open a long answer and give its lines as they come. Raises the same, also in between."""
