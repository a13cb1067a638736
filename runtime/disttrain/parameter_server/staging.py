"""One attempt's gradient on its way to one shard, which keeps it until an attempt is committed."""

from dataclasses import dataclass

from disttrain.parameter_server.link import ShardLink, refusal
from disttrain.parameter_server.messages import Identity
from disttrain.parameter_server.sending import Sending
from disttrain.state.vector import Vector
from disttrain.transport.header import Verb
from disttrain.transport.interface import Buffer, Destination, Message


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A group's gradient for all shards. Nothing in its buffer may change until it is staged."""

    attempt: int
    """Its number, unique in the job."""
    evaluation: int
    group: int
    vector: Vector
    """What the model trains: its gradient has the same type and length."""
    gradient: Buffer
    """The sum over the samples of the group."""


class StageTask:
    """See `conversation.Task`. Begins anew when welcomed: staging twice changes nothing."""

    destination: Destination | None = None

    def __init__(self, link: ShardLink, identity: Identity, stage: Stage) -> None:
        self.is_done = False
        self.incarnation = 0
        """Of the shard that has it all."""
        self._link = link
        self._stage = stage
        header = identity.header(Verb.STAGE)._replace(
            sequence=stage.evaluation, lease=stage.attempt, lease_offset=stage.group
        )
        self._sending = Sending(link, header, {stage.vector: stage.gradient})
        self._sending.begin()

    @property
    def first_unacknowledged(self) -> int:
        """A staged gradient says nothing about pushes."""
        return 0

    def welcomed(self, message: Message) -> None:
        """Begin with the first chunk."""
        del message
        self._sending.begin()

    def send_more(self) -> bool:
        return self._sending.send_more()

    def take(self, message: Message) -> None:
        """The end, or a refusal for good. Raises EvaluationOver and RequestRefused."""
        header = message.header
        if (header.sequence, header.lease) != (self._stage.evaluation, self._stage.attempt):
            return
        if header.verb == Verb.REFUSED:
            raise refusal(self._link, message)
        if header.verb == Verb.STAGED:
            self.is_done = True
            self.incarnation = header.incarnation
