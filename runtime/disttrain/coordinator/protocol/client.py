"""A connection to the coordinator with a thread of its own: for replicas, launcher and tools."""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress

from disttrain.coordinator import errors
from disttrain.coordinator.phases import reason_of
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.commands import End, NumberedCommand, Result
from disttrain.coordinator.protocol.control import ControlConnection, Report, not_joined
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.errors import FinalError
from disttrain.launch.config import LaunchConfig
from disttrain.launch.outcome import LONGEST_MESSAGE
from disttrain.transport.factory import open_transport
from disttrain.transport.header import Role
from disttrain.transport.interface import Channel

_LOOK_AGAIN_SECONDS = 0.05
"""Whether a heartbeat or a repetition is due. Each look costs 0.2 ms of a core that trains."""
_MEANWHILE_SECONDS = 5.0
"""Of waiting to join, before whoever waits may look around."""
_CLOSE_SECONDS = 30.0
"""Longer than one look may take: the channel belongs to the thread, which closes it."""


class CoordinatorClient:
    """Talks to the coordinator in the background; every method may be called from any thread.

    It survives a restart of the coordinator: requests are repeated until they are answered. When
    this incarnation is fenced,
    waiting and later requests raise MemberFenced, and `commands` gets an `End` with id 0.
    """

    def __init__(
        self,
        connect: Callable[[], Channel],
        role: Role,
        heartbeat_seconds: float = 0.5,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`connect` makes the channel inside the client's thread, which owns it.

        That thread calls `on_end` when an `End` is among the commands, for whoever waits for
        something that will not come any more.
        """
        self.commands: queue.Queue[NumberedCommand] = queue.Queue()
        """Commands to carry out, each once; answer with `answer`."""
        self.member: MemberId | None = None
        """Who this process is; None before `join`."""
        self.lost_leases: frozenset[int] = frozenset()
        """Leases given to others: skip what is not begun of them.

        Each until the coordinator has heard where it ended here."""
        self._connect = connect
        self._role = role
        self._heartbeat_seconds = heartbeat_seconds
        self._on_end = on_end
        self._report: Report | None = None
        self._requests: queue.SimpleQueue[tuple[messages.Request, Future[messages.Reply]]] = (
            queue.SimpleQueue()
        )
        self._open: set[Future[messages.Reply]] = set()
        self._channel: Channel | None = None
        self._closing = threading.Event()
        self._ended: errors.CoordinatorError | None = None
        self._latest = messages.HeartbeatReply()
        self._thread = threading.Thread(target=self._run, name="coordinator-client", daemon=True)
        self._thread.start()

    @property
    def shards(self) -> tuple[messages.ShardAddress, ...]:
        """The shards' present incarnations, as they were told last."""
        return self._latest.shards or ()

    @property
    def live_replicas(self) -> int:
        return self._latest.live_replicas

    def require_wanted(self) -> None:
        """Raises MemberRemoved once the coordinator has said so."""
        if isinstance(self._ended, errors.MemberRemoved):
            raise self._ended

    def join(
        self,
        join: messages.Join,
        report: Report,
        timeout: float = 60.0,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> messages.Joined:
        """Introduces this process and starts heartbeats, each with `report()`, in the background.

        `meanwhile` is called every few seconds of waiting; what it raises ends that. Raises
        NotJoined, or TimeoutError when the coordinator is not there in time.
        """
        reply = _patiently(self.request(join), timeout, meanwhile)
        if not isinstance(reply, messages.Joined):
            raise not_joined(join, reply)
        self.member = reply.member
        self._report = report
        self._wake()
        return reply

    def request(self, request: messages.Request) -> Future[messages.Reply]:
        """Sends a request; the future gets the reply, or MemberFenced. Never blocks."""
        future: Future[messages.Reply] = Future()
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        self._requests.put((request, future))
        self._wake()
        if self._ended is not None:
            self._refuse_queued(self._ended)
        return future

    def answer(self, command: NumberedCommand, result: Result) -> None:
        """Says what came of a command; repeated in the background until the coordinator has it."""
        if self.member is not None and command.id:
            done = messages.CommandDone(member=self.member, order=command.id, result=result)
            self.request(done)

    def flush(self, timeout: float) -> bool:
        """Waits until every request is answered; False if some are not after `timeout` seconds."""
        return not wait(list(self._open), timeout).not_done

    def close(self) -> None:
        """Ends the thread; unanswered requests raise CoordinatorSilent."""
        self._closing.set()
        self._wake()
        self._thread.join(_CLOSE_SECONDS)

    def _wake(self) -> None:
        """The thread looks at what it was told; without a channel yet it will in any case."""
        if self._channel is not None:
            self._channel.wake()

    def _run(self) -> None:
        waiting: dict[int, Future[messages.Reply]] = {}
        try:
            self._channel = self._connect()
            self._converse(self._channel, waiting)
            self._end(errors.CoordinatorSilent("the client was closed"), waiting)
        except errors.MemberFenced as error:
            self._end(error, waiting)
            self._hand_out(NumberedCommand(id=0, order=End(reason=str(error))))
        except Exception as error:
            # Whoever waits must not wait for ever because a report or the transport failed.
            self._end(errors.CoordinatorSilent(f"the client's thread failed: {error!r}"), waiting)
            raise

    def _converse(self, channel: Channel, waiting: dict[int, Future[messages.Reply]]) -> None:
        control = ControlConnection(channel, self._role, self._heartbeat_seconds)
        try:
            while not self._closing.is_set():
                self._send_queued(control, waiting)
                self._deliver(control, waiting)
            # What was said just before the end is said.
            self._send_queued(control, waiting)
        finally:
            control.close()

    def _send_queued(
        self, control: ControlConnection, waiting: dict[int, Future[messages.Reply]]
    ) -> None:
        while not self._requests.empty():
            request, future = self._requests.get()
            if isinstance(request, messages.CommandDone) and self._report is not None:
                # A command may end the job; that must not be judged by counters older than it.
                control.report_now(self._report)
            try:
                waiting[control.request(request)] = future
            except errors.MessageTooLong as error:
                future.set_exception(error)

    def _deliver(
        self, control: ControlConnection, waiting: dict[int, Future[messages.Reply]]
    ) -> None:
        received = control.poll(self._report, wait=_LOOK_AGAIN_SECONDS)
        self._latest = control.latest
        self.lost_leases = control.lost_leases
        for command in received.commands:
            self._hand_out(command)
        for number, reply in received.replies.items():
            if number in waiting:
                waiting.pop(number).set_result(reply)

    def _hand_out(self, command: NumberedCommand) -> None:
        self.commands.put(command)
        if isinstance(command.order, End):
            self._on_end()

    def _end(
        self, error: errors.CoordinatorError, waiting: dict[int, Future[messages.Reply]]
    ) -> None:
        self._ended = error
        for future in waiting.values():
            future.set_exception(error)
        self._refuse_queued(error)

    def _refuse_queued(self, error: errors.CoordinatorError) -> None:
        with suppress(queue.Empty):
            while True:
                self._requests.get_nowait()[1].set_exception(error)


def _patiently(
    asked: Future[messages.Reply], timeout: float, meanwhile: Callable[[], None]
) -> messages.Reply:
    end = time.monotonic() + timeout
    while (left := end - time.monotonic()) > _MEANWHILE_SECONDS:
        if wait([asked], _MEANWHILE_SECONDS).done:
            break
        meanwhile()
    return asked.result(max(0.0, left))


def report_failure(config: LaunchConfig, error: FinalError) -> None:
    """A member's error that no restart heals, if no launcher tells of it: the job ends as Failed.

    Returns when the coordinator has decided that, however late.
    """
    settings = config.transport_config
    transport = open_transport(settings)
    client = CoordinatorClient(lambda: transport.connect(config.coordinator_address), settings.role)
    message = f"{config.place or config.process}: {error or type(error).__name__}"[:LONGEST_MESSAGE]
    fail = messages.Fail(reason=reason_of(type(error).__name__), message=message)
    try:
        wait([client.request(fail)])
    finally:
        client.close()
        transport.close()
