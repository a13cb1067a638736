"""Asks all shards at once and stays at it until each has answered, restarts included."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from disttrain.parameter_server.errors import ShardsAway
from disttrain.parameter_server.link import ClientConfig, LinkState, ShardLink
from disttrain.parameter_server.messages import Side
from disttrain.transport.header import Verb
from disttrain.transport.interface import Channel, Destination, Message

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
        self._shards = len(config.placement.holders)
        self._stopped = threading.Event()
        self.links: dict[int, ShardLink] = {}
        self._follow_directory()

    def ask(
        self, task_of: Callable[[ShardLink], Asked], shards: Collection[int] | None = None
    ) -> list[Asked]:
        """Ask these shards, or all; the tasks, in that order, when every one is done.

        Blocks until then, restarts of shards included. Raises Fenced, RequestRefused, ShardsAway.
        """
        self._wait_for_shards()
        asked = range(self._shards) if shards is None else shards
        tasks = {shard: task_of(self.links[shard]) for shard in asked}
        self._run(tasks)
        return list(tasks.values())

    def stop(self) -> None:
        """What is under way raises ShardsAway soon; any thread."""
        self._stopped.set()

    def close(self) -> None:
        """Drops what was not sent."""
        for link in self.links.values():
            link.close()

    def _wait_for_shards(self) -> None:
        end = self._config.transport.now() + self._config.patience_seconds
        while len(self.links) < self._shards:
            self._config.transport.wait([], _TICK_SECONDS)
            if self._stopped.is_set() or self._config.transport.now() > end:
                known = f"{len(self.links)} of {self._shards} shards are known"
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
            link = self.links.get(address.index)
            if link is None:
                link = ShardLink(self._config, self._side, address.index)
                self.links[address.index] = link
            link.follow(address.address, address.incarnation)
