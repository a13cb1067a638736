"""A method that is carried out by fused orders; its state can be written and read as JSON."""

from disttrain.sandblaster.frame import Frame, State
from disttrain.sandblaster.json_form import JsonForm
from disttrain.sandblaster.method import Answer, Progress, Request

STATE_JSON = JsonForm(State)
"""Of a method's state."""


class BatchMethod:
    """One run of a method; see `method.Method`."""

    def __init__(self, frame: Frame, state: State | None = None) -> None:
        self.state = State() if state is None else state
        self._frame = frame

    @property
    def progress(self) -> Progress:
        return self.state.progress

    def advance(self, answer: Answer | None) -> Request | None:
        step = self._frame.begin()
        if answer is not None:
            step = self._frame.advance(self.state, answer)
        self.state = step.state
        return step.request
