"""A process group over gloo, and how it is formed.

Its messages are neither encrypted nor authenticated; see docs/security.md.
"""

import ctypes
import itertools
import math
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, distributed

from disttrain.groups.errors import GroupLost, NotConnected
from disttrain.groups.meeting import Rendezvous
from disttrain.groups.staging import Staging, staging
from disttrain.groups.steps import Collective
from disttrain.parallel.communicator import Communicator, Exchange

_Gloo: Any = distributed.ProcessGroupGloo
"""Torch's type information lacks what is used of it."""
_LOOK_AGAIN_SECONDS = 0.05
_CONNECT_SECONDS = 120.0
"""For the members to connect, from when each knows where the others are. It takes a moment, and who
is kept from it waits for ever, while it seems to live."""
_HEAR_SECONDS = 5.0
"""For the coordinator to say that a member has ended, where another one does not connect."""
_LONGEST = timedelta(days=20)
"""Of one operation, for gloo, which counts milliseconds in 32 bits. Others end here what takes too
long: a process waits for its group as long as there is no work."""


class _Store(distributed.Store):  # type: ignore[name-defined, misc]  # As above.
    """What gloo needs of a store while it connects: the members' addresses."""

    def __init__(self, meeting: Rendezvous) -> None:
        super().__init__()
        self._meeting = meeting
        self.found: set[str] = set()
        """Keys: one of each member once all are there."""

    def set(self, key: str, value: bytes | str) -> None:
        self._meeting.put(key, value if isinstance(value, bytes) else value.encode())

    def get(self, key: str) -> bytes:
        value = self._meeting.get(key)
        self.found.add(key)
        return value

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        del timeout  # As long as this incarnation lives.
        for key in keys:
            self.get(key)


class GlooGroup(Collective):
    """A formed group."""

    def __init__(
        self, group: Any, check: Callable[[], None], partition: int, partitions: int
    ) -> None:
        self._group = group
        self._check = check
        self._place = partition, partitions
        self._is_in_step = True

    @cached_property
    def peers(self) -> Communicator:
        # Made only if asked for: it has a thread, which ranks have no use for.
        return GlooCommunicator(self._group, *self._place, self._check)

    def sum(self, values: Sequence[int], seconds: float | None = None) -> list[int]:
        tensor = torch.tensor(values)
        self._run(self._group.allreduce, tensor, seconds)
        return [int(value) for value in tensor.tolist()]

    def all_reduce(self, tensor: Tensor) -> None:
        if tensor.numel():
            _through_host(tensor, lambda host: self._run(self._group.allreduce, host))

    def all_gather(self, into: Tensor, own: Tensor) -> None:
        if not own.numel():
            return
        given = own.detach().cpu().contiguous()

        def gather(host: Tensor) -> None:
            rows = [*_bytes(host).view(into.numel() // own.numel(), -1)]
            self._in_step(lambda: self._group.allgather([rows], [_bytes(given)]))

        _through_host(into, gather)

    @property
    def backend(self) -> Any:
        """What torch calls a process group of gloo."""
        return self._group

    def broadcast(self, tensor: Tensor) -> None:
        if tensor.numel():
            # As bytes: gloo does not know every type of element.
            _through_host(tensor, lambda host: self._run(self._group.broadcast, _bytes(host)))

    def _run(
        self,
        start: Callable[[list[Tensor]], Any],
        host: Tensor,
        seconds: float | None = None,
    ) -> None:
        self._in_step(partial(start, [host]), seconds)

    def _in_step(self, start: Callable[[], Any], seconds: float | None = None) -> None:
        """Run an operation to its end, in its place among those of the other members."""
        if not self._is_in_step:
            message = "the group is not in step any more"
            raise GroupLost(message)
        self._is_in_step = False
        self._wait(start, seconds)
        self._is_in_step = True

    def _wait(self, start: Callable[[], Any], seconds: float | None) -> None:
        done = threading.Event()
        end = None if seconds is None else time.monotonic() + seconds
        try:
            work = start()
            work.get_future().add_done_callback(lambda _: done.set())
            # Waiting in gloo itself could not be ended.
            while not done.wait(_LOOK_AGAIN_SECONDS):
                self._check()
                if end is not None and time.monotonic() >= end:
                    message = f"its members were not there within {seconds:g} s"
                    raise GroupLost(message)
            work.wait()
        except RuntimeError as error:
            message = f"a member of the group does not answer: {error}"
            raise GroupLost(message) from error


def _bytes(host: Tensor) -> Tensor:
    return host.reshape(-1).view(torch.uint8)


@torch.no_grad()
def _through_host(tensor: Tensor, run: Callable[[Tensor], None]) -> None:
    """Run on the tensor itself if gloo can: if it is contiguous, in host memory. Else on a copy."""
    host = tensor.detach().cpu().contiguous()
    run(host)
    if host.data_ptr() != tensor.data_ptr():
        tensor.copy_(host)


class GlooCommunicator(Communicator):
    """The partitions of a replica, over sockets; `staging` says from which memory."""

    def __init__(
        self, group: Any, rank: int, size: int, check: Callable[[], None] = lambda: None
    ) -> None:
        """`check` raises when this process is to end: so do all that wait here."""
        super().__init__(rank, size)
        self._group = group
        self._threads = _Threads(check)
        self._sent: _Numbers = defaultdict(_numbers)
        self._received: _Numbers = defaultdict(_numbers)

    def _exchange(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> Exchange:
        sent = [(to, next(self._sent[to]), _staged(tensor)) for to, tensor in outgoing.items()]
        arriving = [
            (source, next(self._received[source]), _room(into)) for source, into in incoming.items()
        ]

        def handed_over() -> list[Any]:
            works = [self._group.recv([room], source, tag) for source, tag, room in arriving]
            return works + [self._group.send([tensor], to, tag) for to, tag, tensor in sent]

        rooms = [room for _, _, room in arriving]
        landing = list(zip(incoming.values(), rooms, strict=True))
        if self._threads.are_many:
            with _answering():
                ended = partial(_ended, handed_over())
            return _UnderWay(self._threads, lambda: self._threads.begin(ended), landing)
        act = self._threads.begin(lambda: _ended(handed_over()))
        return _UnderWay(self._threads, lambda: act, landing)

    def _reduce(self, tensor: Tensor, *, is_sum: bool) -> Tensor:
        host = tensor.detach().to("cpu", copy=True)
        options = distributed.AllreduceOptions()
        options.reduceOp = distributed.ReduceOp.SUM if is_sum else distributed.ReduceOp.MAX
        act = self._threads.begin(lambda: self._group.allreduce([host], options).wait())
        self._threads.wait(act)
        return host.to(tensor.device)


_Numbers = defaultdict[int, Iterator[int]]
"""Of messages, by the other partition: they are told apart, in whatever order gloo gets them."""
_MOST_UNDER_WAY = 2**16
_MANY_THREADS = 16


def _numbers() -> Iterator[int]:
    return itertools.cycle(range(_MOST_UNDER_WAY))


@contextmanager
def _answering() -> Iterator[None]:
    """Around calls of gloo. Raises GroupLost where a partition does not answer."""
    try:
        yield
    except RuntimeError as error:
        message = f"a partition of the replica does not answer: {error}"
        raise GroupLost(message) from error


def _ended(works: Sequence[Any]) -> None:
    for work in works:
        work.wait()


class _Threads:
    """Run what waits in gloo, each in a thread, which is used again.

    Gloo holds up who hands it a message while it reads another one from the same peer, and nothing
    ends its waiting. So that is a thread's business: the caller computes meanwhile, and may end.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._idle: list[queue.SimpleQueue[Callable[[], None]]] = []
        self._started = 0

    @property
    def are_many(self) -> bool:
        """Then who has more to send hands it over itself, and has a thread only once it waits."""
        return not self._idle and self._started >= _MANY_THREADS

    def begin(self, act: Callable[[], None]) -> "Future[None]":
        future: Future[None] = Future()
        acts = self._idle.pop() if self._idle else self._start()

        def run() -> None:
            try:
                act()
            except BaseException as error:
                self._idle.append(acts)
                future.set_exception(error)
            else:
                self._idle.append(acts)
                future.set_result(None)

        acts.put(run)
        return future

    def wait(self, future: "Future[None]") -> None:
        """Raises GroupLost, and what `check` does."""
        while not wait([future], _LOOK_AGAIN_SECONDS).done:
            self._check()
        with _answering():
            future.result()

    def _start(self) -> "queue.SimpleQueue[Callable[[], None]]":
        acts: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

        def run() -> None:
            while True:
                acts.get()()

        threading.Thread(target=run, name="exchange", daemon=True).start()
        self._started += 1
        return acts


class _UnderWay(Exchange):
    def __init__(
        self,
        threads: _Threads,
        waiting: Callable[[], "Future[None]"],
        landing: list[tuple[Tensor, Tensor]],
    ) -> None:
        """`landing`: what is wanted, and what gloo receives it into."""
        self._threads, self._waiting, self._landing = threads, waiting, landing

    def wait(self) -> None:
        self._threads.wait(self._waiting())
        for into, room in self._landing:
            if into is not room:
                into.copy_(room, non_blocking=True)


def _staged(tensor: Tensor) -> Tensor:
    room = _room(tensor)
    return tensor if room is tensor else room.copy_(tensor)


def _room(tensor: Tensor) -> Tensor:
    """What gloo sends from or receives into: the tensor itself, or as much memory of the host."""
    if staging(tensor.device) is Staging.NONE:
        return tensor
    return torch.empty_like(tensor, device="cpu", pin_memory=True)


def communicator(store: Any, rank: int, size: int, address: str) -> GlooCommunicator:
    """Of processes with a store of torch's in common; `address` is this machine's."""
    return GlooCommunicator(_connected(store, rank, size, address), rank, size)


def form(
    meeting: Rendezvous, partition: int, partitions: int, address: str, check: Callable[[], None]
) -> GlooGroup:
    """Connect with all members of this incarnation, as soon as they are there.

    `address`: of this machine, where the others connect to. `check` raises when this process is to
    end, also later. Raises GroupLost, and NotConnected.
    """
    formed: Future[Any] = Future()
    store = _Store(meeting)

    def connect() -> None:
        try:
            group = _connected(store, partition, partitions, address)
        except BaseException as error:
            formed.set_exception(error)
            return
        formed.set_result(group)

    # In a thread of its own, since nothing ends gloo's waiting for a peer.
    threading.Thread(target=connect, name="group-forms", daemon=True).start()
    end = math.inf
    while not wait([formed], _LOOK_AGAIN_SECONDS).done:
        check()
        if len(store.found) < partitions:
            continue
        end = min(end, time.monotonic() + _CONNECT_SECONDS)
        if time.monotonic() >= end:
            raise _not_connected(f"did not connect within {_CONNECT_SECONDS:g} s", address)
    try:
        return GlooGroup(formed.result(), check, partition, partitions)
    except RuntimeError as error:
        _hear(check)
        raise _not_connected(f"did not connect: {error}", address) from error


def _hear(check: Callable[[], None]) -> None:
    """Wait a moment for the word that this incarnation is over; `check` raises then."""
    end = time.monotonic() + _HEAR_SECONDS
    while time.monotonic() < end:
        check()
        time.sleep(_LOOK_AGAIN_SECONDS)


def _not_connected(how: str, address: str) -> NotConnected:
    message = (
        f"the group did not form: its members {how}; let nothing, such as a NetworkPolicy, keep "
        f"them from each other at {address}"
    )
    return NotConnected(message)


def _connected(store: _Store, partition: int, partitions: int, address: str) -> Any:
    # The only way to choose an address.
    options = _Gloo._Options()  # noqa: SLF001
    options._devices = [_Gloo.create_device(hostname=address)]  # noqa: SLF001
    options._timeout = _LONGEST  # noqa: SLF001
    options._threads = 1  # noqa: SLF001
    made = _Gloo(store, partition, partitions, options)
    # Never destroyed, not even as the interpreter ends: the end of a process group waits for its
    # members, and one that is stopped keeps a process whose group is over from ending.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return made
