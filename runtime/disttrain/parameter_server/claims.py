"""What a push says of itself, and what no honest replica can say."""

from typing import NamedTuple

from disttrain.parameter_server.holder_side import Refused, ShardState
from disttrain.parameter_server.messages import MOST_PUSHES_TOLD
from disttrain.transport.header import Header, Reason


class MostWork(NamedTuple):
    """Of one push, as the manifest has it."""

    steps: int
    samples: int
    """Of one step."""


def check(header: Header, state: ShardState, most: MostWork | None) -> None:
    """Raises Refused for what would move the parameters or the schedule by more than work does.

    `most`: None where nobody knows.
    """
    if not 0 < header.scale <= 1:
        # Clipping only makes smaller: anything else would overflow or climb.
        raise Refused(Reason.MALFORMED, f"scale {header.scale} is not above 0 and at most 1")
    if header.version_incarnation == state.incarnation and header.version > state.count:
        sentence = f"computed on version {header.version} of {state.count}"
        raise Refused(Reason.MALFORMED, sentence)
    if most is not None and header.samples > MOST_PUSHES_TOLD * most.steps * most.samples:
        raise _too_much(header, f"counts {header.samples} samples", most)


def check_weights(header: Header, most: MostWork) -> None:
    """Raises Refused for steps and samples that a merge would weigh too much."""
    steps, samples = header.local_steps, header.local_samples
    if not 0 < steps <= most.steps or samples > steps * most.samples:
        raise _too_much(header, f"is of {steps} steps and {samples} samples", most)


def _too_much(header: Header, said: str, most: MostWork) -> Refused:
    return Refused(
        Reason.MALFORMED,
        f"push {header.sequence} {said}, and can hold 1 to {most.steps} steps of up to "
        f"{most.samples} samples: its replica has to follow the batch size and the steps between "
        "pushes that the manifest has",
    )
