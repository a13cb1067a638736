"""kopf's two storages, storing nothing: an object costs no patch, and none is ever needed."""

from collections.abc import Iterable
from typing import Any

import kopf


class NoDiffBase(kopf.DiffBaseStorage):
    """Keeps no last state: nothing here asks what changed."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> Any:
        """Copy nothing: kopf does it for each event otherwise."""
        del body, extra_fields
        return {}

    def fetch(self, *, body: kopf.Body) -> None:
        """Nothing was stored."""

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: Any) -> None:
        """Store nothing."""


class NoProgress(kopf.ProgressStorage):
    """Keeps no progress: event handlers have none."""

    def fetch(self, *, key: Any, body: kopf.Body) -> None:
        """Nothing was stored."""

    def store(self, *, key: Any, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Store nothing."""

    def purge(self, *, key: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """There is nothing to remove."""

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Wake nobody by a patch."""

    def clear(self, *, essence: Any) -> Any:
        """There is nothing to leave out."""
        return essence
