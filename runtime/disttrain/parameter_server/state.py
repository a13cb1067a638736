"""Everything that one shard knows, and the answers it makes from it."""

from dataclasses import dataclass, field
from typing import NamedTuple

from disttrain.holder.values import Notes, Values
from disttrain.holder.writing import Cut
from disttrain.parameter_server import restoring
from disttrain.parameter_server.deliveries import Decision, Deliveries
from disttrain.parameter_server.messages import Version
from disttrain.transport.header import Header, Reason, Role, Verb


class Answer(NamedTuple):
    """One message to the peer that asked. Copy the payload before anything else is done."""

    header: Header
    payload: bytes | memoryview = b""


class Refused(Exception):
    """A request is not carried out, and its sender is told why."""

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


REASONS = {
    Decision.OUT_OF_ORDER: Reason.OUT_OF_ORDER,
    Decision.UNKNOWN_SENDER: Reason.UNKNOWN_SENDER,
    Decision.OLD_INCARNATION: Reason.OLD_INCARNATION,
    Decision.REFUSED_BEFORE: Reason.NOT_FINITE,
}


@dataclass(slots=True)
class ShardState:
    """Belongs to the shard's one thread."""

    index: int
    incarnation: int
    values: Values | None = None
    """None until the coordinator has told the placement."""
    deliveries: Deliveries = field(default_factory=Deliveries)
    is_initialised: bool = False
    """Whether every value was uploaded or restored."""
    count: int = 0
    """Updates in the values."""
    samples: int = 0
    """Samples of all pushes applied completely, which the schedule goes by."""
    live_replicas: int = 1
    description: dict[str, str] = field(default_factory=dict)
    """What else a strategy wants to find again in a checkpoint."""
    cut: Cut | None = None
    """The checkpoint that is being written: it is told of what is about to change."""

    @property
    def version(self) -> Version:
        return Version(self.incarnation, self.count)

    def notes(self) -> Notes:
        """What its next life has to find in its part of a checkpoint."""
        metadata = {
            **self.description,
            "samples": str(self.samples),
            "incarnation": str(self.incarnation),
        }
        tables = restoring.table_of(self.deliveries.copy())
        return Notes(version=self.count, metadata=metadata, tables=tables)

    def answer(self, verb: Verb, request: Header) -> Header:
        """The header of an answer, with the present version."""
        return request._replace(
            verb=verb,
            role=Role.SHARD,
            sender=self.index,
            incarnation=self.incarnation,
            receiver_incarnation=request.incarnation,
            version_incarnation=self.incarnation,
            version=self.count,
            segment=0,
            segment_offset=0,
            payload_bytes=0,
            checksum=0,
        )

    def refuse(self, request: Header, refused: Refused) -> Answer:
        header = self.answer(Verb.REFUSED, request)._replace(reason=refused.reason)
        return Answer(header, str(refused).encode())
