"""The chunks of a push at a shard: whether they are sound, what they change, and merged buffers."""

from collections.abc import Sequence

import torch
from torch import Tensor

from disttrain.holder.values import Values
from disttrain.parameter_server.holder_side import Refused, ShardState
from disttrain.state.share import Part
from disttrain.state.vector import BUFFERS
from disttrain.transport.header import Header, Reason


def require_sound(header: Header, state: ShardState) -> None:
    """Raises Refused for what no honest sender would say."""
    if not 0 < header.scale <= 1:
        # Clipping only makes smaller: anything else would overflow or climb.
        raise Refused(Reason.MALFORMED, f"scale {header.scale} is not above 0 and at most 1")
    if header.version_incarnation == state.incarnation and header.version > state.count:
        sentence = (
            f"computed on version {header.version}, this incarnation has reached {state.count}"
        )
        raise Refused(Reason.MALFORMED, sentence)


def part_of(values: Values, header: Header, pushed: Sequence[str]) -> Part:
    """What a chunk changes. Raises Refused for one that does not fit.

    The parameters' chunks come first, cut as everywhere, each after those that are `pushed` with
    it; then parts of the buffers.
    """
    trained, group = values.trained, 1 + len(pushed)
    parameter_chunks = values.share.num_chunks(trained)
    number, place = divmod(header.chunk, group)
    if number >= parameter_chunks:
        vector = values.vector_of(header)
        if vector is not None and vector.name == BUFFERS and values.holds(vector, header):
            return Part(vector, header.chunk, header.first, header.count)
    else:
        vector = [*map(trained.beside, pushed), trained][place]
        part = values.share.chunk(vector, number)
        said = header.vector, header.first, header.count
        known = values.share.placement.number(vector), part.first, part.count
        is_own_type = header.element_type == vector.element_type
        fits = vector.travels_as(header.element_type) if vector.is_trained else is_own_type
        if fits and said == known and header.chunks >= group * parameter_chunks:
            return part
    end = header.first + header.count
    sentence = f"elements {header.first} to {end} are not chunk {header.chunk}"
    raise Refused(Reason.WRONG_LAYOUT, sentence)


def merge(present: Tensor, sent: Tensor, live_replicas: int) -> None:
    """Move a shard's copy of the model's buffers towards what a replica sent. In place.

    Floating point: by 1 / live replicas, so that each of them counts alike; one alone is copied
    exactly. Whole numbers are counters: the maximum.
    """
    if not present.is_floating_point():
        torch.maximum(present, sent, out=present)
    elif live_replicas <= 1:
        present.copy_(sent)
    else:
        present.lerp_(sent, 1.0 / live_replicas)
