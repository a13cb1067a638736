"""The upload of the initial values to one shard."""

from collections.abc import Mapping

from disttrain.parameter_server.link import ShardLink, refusal
from disttrain.parameter_server.messages import Identity
from disttrain.parameter_server.sending import Sending
from disttrain.state.vector import Vector
from disttrain.transport.header import Verb
from disttrain.transport.interface import Buffer, Destination, Message


class UploadTask:
    """See `conversation.Task`. Begins anew after a restart: the shard keeps nothing unfinished."""

    destination: Destination | None = None

    def __init__(
        self, link: ShardLink, identity: Identity, number: int, values: Mapping[Vector, Buffer]
    ) -> None:
        """`number` of the upload in the sender's life."""
        self.is_done = False
        self._link = link
        self._number = number
        header = identity.header(Verb.UPLOAD)._replace(sequence=number)
        self._sending = Sending(link, header, values)

    @property
    def first_unacknowledged(self) -> int:
        """An upload says nothing about pushes."""
        return 0

    def welcomed(self, message: Message) -> None:
        """Begin with the first chunk."""
        del message
        self._sending.begin()

    def send_more(self) -> bool:
        return self._sending.send_more()

    def take(self, message: Message) -> None:
        """The end, or a refusal for good."""
        if message.header.verb == Verb.REFUSED:
            raise refusal(self._link, message)
        # What was sent twice is answered twice: an answer may be to an earlier upload.
        is_answer = message.header.verb == Verb.UPLOADED
        self.is_done = is_answer and message.header.sequence == self._number
