"""The only door to torch.distributed: a process group over gloo, and how it is formed.

Its messages are neither encrypted nor authenticated; see docs/security.md.
"""

import ctypes
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed

from disttrain.groups.errors import GroupLost, NotConnected
from disttrain.groups.meeting import Meeting
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

    def __init__(self, meeting: Meeting) -> None:
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
        self, group: Any, check: Callable[[], None], partition: int = 0, partitions: int = 1
    ) -> None:
        self._group = group
        self._check = check
        self._is_in_step = True
        self._peers = GlooCommunicator(group, partition, partitions, check)

    @property
    def peers(self) -> Communicator:
        return self._peers

    def sum(self, values: Sequence[int], seconds: float | None = None) -> list[int]:
        tensor = torch.tensor(values)
        self._run(self._group.allreduce, tensor, seconds)
        return [int(value) for value in tensor.tolist()]

    def all_reduce(self, tensor: Tensor) -> None:
        if tensor.numel():
            _through_host(tensor, lambda host: self._run(self._group.allreduce, host))

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
        """Run an operation to its end, in its place among those of the other members."""
        if not self._is_in_step:
            message = "the group is not in step any more"
            raise GroupLost(message)
        self._is_in_step = False
        self._wait(partial(start, [host]), seconds)
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
    """The partitions of a replica, over sockets; what is on a GPU goes through pinned memory."""

    def __init__(
        self, group: Any, rank: int, size: int, check: Callable[[], None] | None = None
    ) -> None:
        """`check`: raises when this process is to end, also while it waits; None: it never is."""
        super().__init__(rank, size)
        self._group = group
        self._await = _await if check is None else _Waiting(check).wait

    def _exchange(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> Exchange:
        sent = [(to, _staged(tensor)) for to, tensor in outgoing.items()]
        arriving = [(source, into, _room(into)) for source, into in incoming.items()]
        with _lost_group():
            works = [self._group.recv([room], source, 0) for source, _, room in arriving]
            works += [self._group.send([tensor], to, 0) for to, tensor in sent]
        landing = [(into, room) for _, into, room in arriving]
        return _UnderWay(partial(self._await, works), landing, sent)

    def _reduce(self, tensor: Tensor, *, is_sum: bool) -> Tensor:
        host = tensor.detach().to("cpu", copy=True)
        options = distributed.AllreduceOptions()
        options.reduceOp = distributed.ReduceOp.SUM if is_sum else distributed.ReduceOp.MAX
        with _lost_group():
            work = self._group.allreduce([host], options)
        self._await([work])
        return host.to(tensor.device)


class _UnderWay(Exchange):
    def __init__(
        self,
        arrive: Callable[[], None],
        arriving: list[tuple[Tensor, Tensor]],
        kept: object,
    ) -> None:
        """`kept` is what gloo reads from while it sends."""
        self._arrive, self._arriving, self._kept = arrive, arriving, kept

    def wait(self) -> None:
        self._arrive()
        for into, room in self._arriving:
            if into is not room:
                into.copy_(room, non_blocking=True)


def _await(works: list[Any]) -> None:
    with _lost_group():
        for work in works:
            work.wait()


@contextmanager
def _lost_group() -> Iterator[None]:
    """Raise what gloo says of a member that has ended as GroupLost."""
    try:
        yield
    except RuntimeError as error:
        message = f"a partition of the replica does not answer: {error}"
        raise GroupLost(message) from error


class _Waiting:
    """Waits in a thread of its own: nothing ends gloo's waiting for a message."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._works: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._is_in_step = True
        threading.Thread(target=self._run, name="partition-waits", daemon=True).start()

    def wait(self, works: list[Any]) -> None:
        """Raises GroupLost, and what `check` does; after either GroupLost at once."""
        if not self._is_in_step:
            message = "the group is not in step any more"
            raise GroupLost(message)
        self._is_in_step = False
        self._works.put(works)
        while True:
            try:
                error = self._ended.get(timeout=_LOOK_AGAIN_SECONDS)
            except queue.Empty:
                self._check()
                continue
            if error is not None:
                raise error
            self._is_in_step = True
            return

    def _run(self) -> None:
        while True:
            try:
                _await(self._works.get())
            except BaseException as error:
                self._ended.put(error)
            else:
                self._ended.put(None)


def _staged(tensor: Tensor) -> Tensor:
    if not tensor.is_cuda:
        return tensor
    room = _room(tensor)
    room.copy_(tensor)
    return room


def _room(tensor: Tensor) -> Tensor:
    """Memory of the host for as much."""
    return torch.empty_like(tensor, device="cpu", pin_memory=True) if tensor.is_cuda else tensor


def communicator(store: Any, rank: int, size: int, address: str) -> GlooCommunicator:
    """Of processes with a store of torch's in common; `address` is this machine's."""
    return GlooCommunicator(_connected(store, rank, size, address), rank, size)


def form(
    meeting: Meeting, partition: int, partitions: int, address: str, check: Callable[[], None]
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
