"""A method that is carried out by fused commands; its state can be written and read as JSON."""

from typing import Protocol

from disttrain.sandblaster.batch.driver import JsonForm
from disttrain.sandblaster.method import Answer, Progress, Request
from disttrain.sandblaster.scheme import IterationScheme, State

STATE_JSON = JsonForm(State)
"""Of a method's state."""


class Method(Protocol):
    """One run of a batch method."""

    @property
    def progress(self) -> Progress:
        """How far it is."""
        ...

    def advance(self, answer: Answer | None) -> Request | None:
        """What is wanted next, given what came of the last request; None when it is done.

        The first call has no answer to give.
        """
        ...


class BatchMethod:
    """One run of a method; see `Method`."""

    def __init__(self, scheme: IterationScheme, state: State | None = None) -> None:
        self.state = State() if state is None else state
        self._scheme = scheme

    @property
    def progress(self) -> Progress:
        return self.state.progress

    def advance(self, answer: Answer | None) -> Request | None:
        step = self._scheme.begin()
        if answer is not None:
            step = self._scheme.advance(self.state, answer)
        self.state = step.state
        return step.request
