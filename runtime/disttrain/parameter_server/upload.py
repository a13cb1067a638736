"""Initial values that arrive in chunks, in any order and perhaps twice."""

from disttrain.layout import ELEMENT_TYPES
from disttrain.parameter_server.deliveries import SenderLife
from disttrain.parameter_server.received import is_finite, tensor_of
from disttrain.parameter_server.values import Values
from disttrain.transport.header import Header, Reason, Vector


class UploadProgress:
    """Which chunks of one life's upload are still missing."""

    def __init__(self, life: SenderLife, values: Values) -> None:
        self.life = life
        self._missing = {
            (vector, chunk) for vector in values.ranges for chunk in range(values.chunks(vector))
        }

    def add(self, vector: Vector, chunk: int) -> bool:
        """A chunk was stored. True: they all are."""
        self._missing.discard((vector, chunk))
        return not self._missing


def store_chunk(values: Values, header: Header, payload: memoryview) -> Reason:
    """Take over one chunk, or say why not. Nothing may have been fetched yet."""
    if not values.holds(header):
        return Reason.WRONG_LAYOUT
    vector = Vector(header.vector)
    if not values.is_cut_so(header):
        return Reason.WRONG_LAYOUT
    sent = tensor_of(payload, ELEMENT_TYPES[vector])
    if vector is values.trainable and not is_finite(sent):
        return Reason.NOT_FINITE
    values.part(vector, values.chunk(vector, header.chunk)).copy_(sent)
    return Reason.NONE
