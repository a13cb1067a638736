"""Whatever else makes the pods of many jobs, for the operator to be held against."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from cluster.bare import ControlPlane

Maker = Callable[[str], Awaitable[None]]
"""Makes a job of this name, or all that it consists of."""


class Contender(Protocol):
    """One of them, on a control plane of its own."""

    @property
    def name(self) -> str:
        """What its figures are called, and its process among those of the control plane."""

    @property
    def path(self) -> str:
        """The collection of its jobs; whoever deletes one from it deletes its pods."""

    def is_built(self) -> bool:
        """Whether it starts without minutes of building."""

    def started(self, plane: ControlPlane) -> AbstractAsyncContextManager[Maker]:
        """Start it, with the rights that its authors ask for."""
