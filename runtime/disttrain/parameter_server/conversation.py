"""Asks all shards at once and stays at it until each has answered, restarts included.

Each has a link, which greets it, notices its restart, and never trusts silence.
"""

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

from disttrain.coordinator.protocol.messages import ShardAddress
from disttrain.parameter_server.errors import EvaluationOver, Fenced, RequestRefused, ShardsAway
from disttrain.parameter_server.messages import Side, Welcome, parse_welcome
from disttrain.state.placement import Placement
from disttrain.state.share import Share
from disttrain.transport.errors import TransportError
from disttrain.transport.header import EMPTY, Header, Reason, Role, Verb
from disttrain.transport.interface import (
    Channel,
    Destination,
    Message,
    Payload,
    Slice,
    Transport,
)

SILENCE_SECONDS = 1.0
"""Without a word for so long, the shard is greeted again: messages may be lost."""
RETRY_SECONDS = 0.02
"""Pause before a shard that is not ready is asked again."""
_REOPEN_AFTER = 3
"""Greetings without an answer before the connection is made anew and its queue thrown away."""
_NUMBERS = itertools.count(1)
"""Of this process's connections: a shard tells by them which of two greetings is the later one."""
_TRY_AGAIN = frozenset({Reason.NOT_READY, Reason.UNKNOWN_SENDER, Reason.BUSY})


class LinkState(Enum):
    """Where the conversation with a shard is."""

    GREETING = auto()
    """HELLO is to be said at `_greet_at`, or was said and not answered."""
    OPEN = auto()
    """Requests are answered."""


Directory = Callable[[], Sequence[ShardAddress]]
"""Where the shards' present incarnations are; asked again and again, from the client's thread."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sends: one incarnation of one replica."""

    index: int
    incarnation: int

    def header(self, verb: Verb) -> Header:
        return EMPTY._replace(
            verb=verb, role=Role.REPLICA, sender=self.index, incarnation=self.incarnation
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientConfig:
    """What all clients of a process share."""

    transport: Transport
    identity: Identity
    directory: Directory
    placement: Placement
    """Who holds what; a shard that was told another one is refused."""
    partition: int = 0
    """Of the model: only shards that hold what is trained in it are spoken with."""
    patience_seconds: float = 3600.0
    """How long a dead shard is waited for before ShardsAway."""


class ShardLink:
    """Belongs to one thread."""

    def __init__(self, config: ClientConfig, side: Side, shard: int, place: int) -> None:
        """`place`: of the shard, among those that are spoken with."""
        self.shard = shard
        self.place = place
        self.placement = config.placement
        self.state = LinkState.GREETING
        self.share: Share | None = None
        """What the shard holds; None before its first word."""
        self.incarnation = 0
        """The shard's incarnation, as it said itself; 0 before its first word."""
        self.channel: Channel | None = None
        self._config = config
        self._side = side
        self._clock = config.transport.now
        self._address = ""
        self._known_incarnation = 0
        self._greet_at = 0.0
        self._unanswered = 0
        self._number = 0
        """Of the connection."""

    def follow(self, address: str, incarnation: int) -> None:
        """Where the directory says that the shard's present incarnation is."""
        if (address, incarnation) != (self._address, self._known_incarnation):
            self._address = address
            self._known_incarnation = incarnation
            self._reopen()

    def greet_if_due(self, sequence: int) -> None:
        """Say HELLO when that is needed; `sequence` is the first push that is not acknowledged."""
        now = self._clock()
        if now < self._greet_at or self.channel is None:
            return
        if self._unanswered and self._unanswered % _REOPEN_AFTER == 0:
            self._reopen()
        self.state = LinkState.GREETING
        self._unanswered += 1
        self._greet_at = now + SILENCE_SECONDS
        header = self._config.identity.header(Verb.HELLO)
        hello = header._replace(sequence=sequence, count=self._side, first=self._number)
        self.send(hello)

    def greet_again(self) -> None:
        """Say HELLO before the next request."""
        self.state = LinkState.GREETING
        self._greet_at = 0.0

    def expect_answer(self) -> None:
        """A request is about to be sent, to which the shard was not asked to answer so far."""
        if self.state is LinkState.OPEN:
            self._greet_at = self._clock() + SILENCE_SECONDS

    def send(self, header: Header, payload: Payload = b"", *, into: Slice | None = None) -> bool:
        """False: the queue stayed full, and the connection was made anew."""
        channel = self.channel
        if channel is None:
            return False
        try:
            channel.send(
                header._replace(receiver_incarnation=self.incarnation), payload, reply_into=into
            )
        except TransportError:
            self._reopen()
            return False
        return True

    def receive(self, destination: Destination | None) -> Message | None:
        """The next message that is not about the connection itself. Raises Fenced."""
        while self.channel is not None:
            message = self.channel.receive(0.0, destination)
            if message is None:
                return None
            self._unanswered = 0
            if message.header.verb != Verb.REFUSED or self.state is LinkState.OPEN:
                self._greet_at = self._clock() + SILENCE_SECONDS
            # Else the next greeting is due: of several chunks that are refused, the first says why.
            if message.header.verb != Verb.REFUSED:
                return message
            if self._is_final(message):
                return message
        return None

    def open(self, message: Message) -> bool:
        """Take a WELCOME in. False: the conversation was open already, and it says nothing new.

        Raises RequestRefused for one that cannot be understood, or from a shard that goes by
        another placement.
        """
        if self.state is LinkState.OPEN:
            return False
        welcome = parse_welcome(message.payload)
        self._require_same(welcome)
        self.share = Share(self.placement, self.shard, welcome.chunk_bytes)
        self.incarnation = message.header.incarnation
        self.state = LinkState.OPEN
        return True

    def close(self) -> None:
        if self.channel is not None:
            self.channel.close()
        self.channel = None

    def _require_same(self, welcome: Welcome) -> None:
        ours = self.shard, self.placement.epoch
        if (welcome.holder, welcome.epoch) != ours:
            message = (
                f"shard {self.shard} says that it is holder {welcome.holder} of placement "
                f"{welcome.epoch}, the coordinator told placement {ours[1]}; is it of this run?"
            )
            raise RequestRefused(message)

    def _is_final(self, message: Message) -> bool:
        """Deal with a refusal: greet again, wait, or leave it to whoever asked."""
        reason = Reason(message.header.reason)
        if reason is Reason.OLD_INCARNATION:
            sentence = bytes(message.payload).decode(errors="replace")
            text = f"shard {self.shard}: {sentence}; end this process"
            raise Fenced(text)
        if reason >= Reason.OLD_INCARNATION:
            return True
        if reason in _TRY_AGAIN:
            self.state = LinkState.GREETING
            self._greet_at = self._clock() + RETRY_SECONDS
        elif self.state is LinkState.OPEN:
            self.greet_again()
        return False

    def _reopen(self) -> None:
        self.close()
        self.channel = self._config.transport.connect(self._address, Role.SHARD, self.shard)
        self._number = next(_NUMBERS)
        self.state = LinkState.GREETING
        self._greet_at = 0.0


def refusal(link: ShardLink, message: Message) -> EvaluationOver | RequestRefused:
    sentence = bytes(message.payload).decode(errors="replace")
    reason = Reason(message.header.reason)
    text = f"shard {link.shard} refused a request ({reason.name}): {sentence}"
    return EvaluationOver(text) if reason is Reason.WRONG_EVALUATION else RequestRefused(text)


_TICK_SECONDS = 0.05


class Task(ABC):
    """What one shard is asked for."""

    is_done = False
    destination: Destination | None = None
    """Where payloads of answers go."""
    first_unacknowledged = 0
    """The number of the push that it is, for HELLO: those before it are answered. 0: it is none."""

    @abstractmethod
    def welcomed(self, message: Message) -> None:
        """The shard said where to go on."""

    @abstractmethod
    def send_more(self) -> bool:
        """Send as much as the window allows. False: nothing was to be sent."""

    @abstractmethod
    def take(self, message: Message) -> None:
        """An answer. Raises the error for a refusal for good."""


Asked = TypeVar("Asked", bound=Task)


class Conversation:
    """The links to all shards for one side; belongs to one thread, except `stop`."""

    def __init__(self, config: ClientConfig, side: Side) -> None:
        self._config = config
        self._side = side
        self._shards = config.placement.holders_of(config.partition)
        self._stopped = threading.Event()
        self.links: dict[int, ShardLink] = {}
        self._follow_directory()

    def ask(
        self, task_of: Callable[[ShardLink], Asked], shards: Collection[int] | None = None
    ) -> list[Asked]:
        """Ask these shards, or all that are spoken with; the tasks, when every one is done.

        Blocks until then, restarts of shards included. Raises Fenced, RequestRefused, ShardsAway.
        """
        self._wait_for_shards()
        asked = (
            self._shards if shards is None else [each for each in self._shards if each in shards]
        )
        tasks = {shard: task_of(self.links[shard]) for shard in asked}
        self._run(tasks)
        return list(tasks.values())

    @property
    def shards(self) -> Sequence[int]:
        """Those that are spoken with."""
        return self._shards

    @property
    def all_shards(self) -> int:
        """How many there are, spoken with or not."""
        return len(self._config.placement.holders)

    def stop(self) -> None:
        """What is under way raises ShardsAway soon; any thread."""
        self._stopped.set()

    def close(self) -> None:
        for link in self.links.values():
            link.close()

    def _wait_for_shards(self) -> None:
        end = self._config.transport.now() + self._config.patience_seconds
        while len(self.links) < len(self._shards):
            self._config.transport.wait([], _TICK_SECONDS)
            if self._stopped.is_set() or self._config.transport.now() > end:
                known = f"{len(self.links)} of {len(self._shards)} shards are known"
                message = f"{known}; are the others running?"
                raise ShardsAway(message)
            self._follow_directory()

    def _run(self, tasks: Mapping[int, Task]) -> None:
        end = self._config.transport.now() + self._config.patience_seconds
        for shard in tasks:
            self.links[shard].expect_answer()
        pending = dict(tasks)
        while pending:
            self._advance(pending)
            pending = {shard: task for shard, task in pending.items() if not task.is_done}
            if pending and (self._config.transport.now() > end or self._stopped.is_set()):
                message = f"no answer from shards {sorted(pending)}; are they running?"
                raise ShardsAway(message)

    def _advance(self, pending: Mapping[int, Task]) -> None:
        sent = False
        for shard, task in pending.items():
            link = self.links[shard]
            link.greet_if_due(task.first_unacknowledged)
            if link.state is LinkState.OPEN:
                sent |= task.send_more()
        if not self._receive(pending) and not sent:
            self._follow_directory()
            self._config.transport.wait(self._channels(pending), _TICK_SECONDS)

    def _channels(self, pending: Mapping[int, Task]) -> list[Channel]:
        links = [self.links[shard] for shard in pending]
        return [link.channel for link in links if link.channel is not None]

    def _receive(self, pending: Mapping[int, Task]) -> bool:
        received = False
        for shard, task in pending.items():
            link = self.links[shard]
            while not task.is_done and (message := link.receive(task.destination)) is not None:
                received = True
                self._take(link, task, message)
        return received

    def _take(self, link: ShardLink, task: Task, message: Message) -> None:
        if message.header.verb != Verb.WELCOME:
            task.take(message)
        elif link.open(message):
            task.welcomed(message)

    def _follow_directory(self) -> None:
        for address in self._config.directory():
            if address.index not in self._shards:
                continue
            link = self.links.get(address.index)
            if link is None:
                place = self._shards.index(address.index)
                link = ShardLink(self._config, self._side, address.index, place)
                self.links[address.index] = link
            link.follow(address.address, address.incarnation)
