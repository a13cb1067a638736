"""A method that is carried out by fused orders; its state can be written and read as JSON."""

from pydantic import ConfigDict, TypeAdapter

from disttrain.sandblaster.descent import Descent, State
from disttrain.sandblaster.method import Answer, Progress, Request

_STATE: TypeAdapter[tuple[State]] = TypeAdapter(
    tuple[State], config=ConfigDict(ser_json_inf_nan="constants")
)


class BatchMethod:
    """One run of a method; see `method.Method`."""

    def __init__(self, descent: Descent, state: State | None = None) -> None:
        self.state = State() if state is None else state
        self._descent = descent

    @property
    def progress(self) -> Progress:
        """See `Method.progress`."""
        return self.state.progress

    def advance(self, answer: Answer | None) -> Request | None:
        """See `Method.advance`."""
        step = self._descent.begin()
        if answer is not None:
            step = self._descent.advance(self.state, answer)
        self.state = step.state
        return step.request


def to_json(state: State) -> bytes:
    """A state as text."""
    return _STATE.dump_json((state,))


def from_json(content: bytes) -> State:
    """The state again, bit for bit. Raises pydantic's ValidationError."""
    (state,) = _STATE.validate_json(content, strict=True)
    return state
