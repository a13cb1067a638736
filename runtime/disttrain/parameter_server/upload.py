"""Initial values that arrive in chunks, in any order and perhaps twice."""

from disttrain.holder.values import Values
from disttrain.parameter_server.deliveries import SenderLife
from disttrain.parameter_server.received import is_finite, tensor_of
from disttrain.transport.header import Header, Reason


class UploadProgress:
    """Which chunks of one life's upload are still missing."""

    def __init__(self, life: SenderLife, values: Values) -> None:
        self.life = life
        share = values.share
        self._missing = {
            (share.placement.number(vector), chunk)
            for vector in share.ranges
            if vector.is_of_a_model
            for chunk in range(share.num_chunks(vector))
        }

    def add(self, header: Header) -> bool:
        """A chunk was stored. True: they all are."""
        self._missing.discard((header.vector, header.chunk))
        return not self._missing


def store_chunk(values: Values, header: Header, payload: memoryview) -> Reason:
    """Take over one chunk, or say why not. Nothing may have been fetched yet."""
    vector = values.vector_of(header)
    if vector is None or not vector.is_of_a_model or not values.is_whole_chunk(vector, header):
        return Reason.WRONG_LAYOUT
    sent = tensor_of(payload, vector.element_type)
    if vector.is_trained and not is_finite(sent):
        return Reason.NOT_FINITE
    values.part(values.share.chunk(vector, header.chunk)).copy_(sent)
    return Reason.NONE
