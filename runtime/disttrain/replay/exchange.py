"""The way between a replayed replica and the replayed shards: what threads and sockets are else."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from disttrain.coordinator.protocol.fields import Position
from disttrain.parameter_server.client import FetchResult, Push, Version
from disttrain.replay.comparing import ComparingLedger
from disttrain.replica.connection import Connection
from disttrain.replica.fetch_thread import FetchThread
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.flat_vector import ChangedBuffers, Outgoing
from disttrain.replica.halt import Halted
from disttrain.replica.ledger import Kind, Ledger
from disttrain.replica.pushes import PushThread
from disttrain.replica.work import WorkItem
from disttrain.state.share import Share
from disttrain.state.vector import BUFFERS, Vector
from disttrain.transport.interface import Buffer


@dataclass(slots=True)
class PushUnderWay:
    """One push, until every shard has answered."""

    push: Push
    outgoing: Outgoing
    computed_on: Tensor
    """A copy of the parameters of its first gradient."""
    items: tuple[WorkItem, ...]
    """The batches whose gradients it carries."""
    waiting: set[int]
    """Shards that have not applied it."""
    squared_distance: float = 0.0
    """Between `computed_on` and the parameters that it met, over the chunks so far."""
    squared_norm: float = 0.0
    """Of the parameters that it met."""


@dataclass(slots=True)
class FetchUnderWay:
    """One fetch, until every shard has given every chunk."""

    number: int
    into: dict[Vector, Buffer]
    missing: list[set[tuple[Vector, int]]]
    """By shard: (vector, chunk)."""
    versions: dict[int, Version] = field(default_factory=dict)
    samples: dict[int, int] = field(default_factory=dict)
    """In those versions."""


class GivenChunk(NamedTuple):
    """What a shard gave to a fetch."""

    fetch: int
    shard: int
    vector: Vector
    chunk: int
    first: int
    """First element, in the whole vector."""
    version: Version
    samples: int
    content: memoryview


class Shards(Protocol):
    """What the world does for a replica that has to wait."""

    def finish_push(self, push: PushUnderWay) -> None:
        """Let the shards go on until they have applied a push."""
        ...

    def finish_fetch(self, fetch: FetchUnderWay) -> None:
        """Let the shards go on until they have given all chunks."""
        ...


class Turns:
    """The training loop of one replayed replica runs in a thread, which goes on only when told to.

    So at any time either the world goes on or one replica: the record alone says in which order.
    """

    def __init__(self, loop: Callable[[], None], threads: int) -> None:
        """`threads`: of PyTorch's, for what the loop computes."""
        self._loop = loop
        self._threads = threads
        self._go, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self._wanted: Callable[[], None] = _nothing
        self._error: BaseException | None = None
        self._is_over = False
        """The loop has ended, or is to end."""
        self._thread = threading.Thread(target=self._run, name="replayed replica", daemon=True)

    def go_on(self) -> bool:
        """Let the loop run until it pauses, then do what it waits for; False: it has ended.

        Raises what ended it.
        """
        if self._is_over:
            return False
        if not self._thread.is_alive():
            self._thread.start()
        self._go.release()
        self._paused.acquire()
        if self._error is not None:
            raise self._error
        wanted, self._wanted = self._wanted, _nothing
        wanted()
        return not self._is_over

    def pause(self, wanted: Callable[[], None] = lambda: None) -> None:
        """In the loop: wait until `go_on` is called again. Raises Halted if the replay is over."""
        self._wanted = wanted
        self._paused.release()
        self._go.acquire()
        if self._is_over:
            raise Halted

    def end(self) -> None:
        """Let the loop end where it is."""
        self._is_over = True
        if self._thread.is_alive():
            self._go.release()
            self._thread.join()

    def _run(self) -> None:
        self._go.acquire()
        torch.set_num_threads(self._threads)
        try:
            self._loop()
        except Halted:
            return
        except BaseException as error:
            self._error = error
        self._is_over = True
        self._paused.release()


class ReplayedPushes(PushThread):
    """In the place of `PushThread`."""

    def __init__(self, model: FlatModel, shards: Shards, count: int, turns: Turns) -> None:
        self.sequence = 0
        self.under_way: dict[int, PushUnderWay] = {}
        self.computed_on: Tensor | None = None
        """Of the gradients accrued since the last push."""
        self.items: list[WorkItem] = []
        self._shards = shards
        self._turns = turns
        self._count = count
        self._changed = ChangedBuffers(model.tensors, model.buffer_values())
        self._idle = list(model.outgoing)

    def acquire(self) -> Outgoing:
        """A buffer whose push was applied by all shards."""
        while not self._idle:
            oldest = next(iter(self.under_way.values()))
            self._turns.pause(partial(self._shards.finish_push, oldest))
        return self._idle.pop(0)

    def submit(self, outgoing: Outgoing, push: Push) -> None:
        """The push lies ready for the shards.

        The replica pauses: what it adopts after the push may be fetched later.
        """
        outgoing.leave()
        outgoing.wait_left()
        push.changed = self._changed.runs(outgoing.buffers.vectors)
        assert self.computed_on is not None  # noqa: S101  a batch was before
        self.sequence = push.sequence
        self.under_way[self.sequence] = PushUnderWay(
            push=push,
            outgoing=outgoing,
            computed_on=self.computed_on,
            items=tuple(self.items),
            waiting=set(range(self._count)),
        )
        self._forget()
        self._turns.pause()

    def passed(self, position: Position) -> None:
        """Nothing is pushed of the batches so far."""
        del position
        self._forget()

    def _forget(self) -> None:
        self.computed_on = None
        self.items.clear()

    def wait_answered(self) -> None:
        """Nothing waits: the record says what came before what."""

    def answered(self, number: int, shard: int) -> PushUnderWay | None:
        """A shard has applied or refused a push; the push if it was the last of them."""
        push = self.under_way[number]
        push.waiting.discard(shard)
        if push.waiting:
            return None
        self._idle.append(push.outgoing)
        return self.under_way.pop(number)


class ReplayedFetches(FetchThread):
    """In the place of `FetchThread`."""

    last_seconds = 0.0

    def __init__(
        self, shards: Shards, shares: Sequence[Share], ledger: ComparingLedger, turns: Turns
    ) -> None:
        self.number = 0
        self.current: FetchUnderWay | None = None
        self._shards = shards
        self._shares = shares
        self._turns = turns
        self._log = ledger
        self._land: Callable[[], None] = _nothing
        self._versions: tuple[Version, ...] = ()
        self._early: list[GivenChunk] = []

    def give(self, chunk: GivenChunk) -> None:
        """A shard gives a chunk. One of a fetch that this replica has not come to is kept."""
        if chunk.fetch > self.number:
            self._early.append(chunk._replace(content=memoryview(bytes(chunk.content))))
        elif self.current is not None and chunk.fetch == self.number:
            _place(self.current, chunk)

    def ask(
        self,
        into: Callable[[], dict[Vector, Buffer]],
        land: Callable[[], None] = lambda: None,
        after_seconds: float | None = 0.0,
    ) -> None:
        """Begin a fetch, unless one is under way; the record says when."""
        del after_seconds
        if self.current is not None:
            return
        self.number += 1
        self._land = land
        vectors = into()
        self.current = FetchUnderWay(
            number=self.number,
            into=vectors,
            missing=[
                {(part.vector, part.chunk) for part in share.all_chunks(vectors)}
                for share in self._shares
            ],
        )
        early, self._early = self._early, []
        for chunk in early:
            self.give(chunk)

    def take(self, within_seconds: float = 0.0) -> FetchResult | None:
        """What arrived, if it was adopted here in the run."""
        del within_seconds
        return self.wait() if self._log.following_kind == Kind.ADOPTED else None

    def wait(self) -> FetchResult | None:
        """What was asked for."""
        fetch = self.current
        if fetch is None:
            return None
        self._turns.pause(partial(self._shards.finish_fetch, fetch))
        self.current = None
        self._land()
        versions = tuple(fetch.versions[shard] for shard in range(len(self._shares)))
        has_buffers = any(vector.name == BUFFERS for vector in fetch.into)
        changed = has_buffers and versions != self._versions
        self._versions = versions
        samples = min(fetch.samples.values())
        return FetchResult(versions=versions, samples=samples, buffers_changed=changed)


class ReplayedConnection(Connection):
    """Has no threads."""

    def __init__(
        self, model: FlatModel, pushes: ReplayedPushes, fetches: ReplayedFetches, ledger: Ledger
    ) -> None:
        self.model = model
        self.pushes = pushes
        self.fetches = fetches
        self.ledger = ledger


def _place(fetch: FetchUnderWay, chunk: GivenChunk) -> None:
    """A chunk that was asked for twice counts as it was given first."""
    name = (chunk.vector, chunk.chunk)
    if name not in fetch.missing[chunk.shard]:
        return
    fetch.missing[chunk.shard].discard(name)
    fetch.versions.setdefault(chunk.shard, chunk.version)
    fetch.samples.setdefault(chunk.shard, chunk.samples)
    offset = chunk.first * chunk.vector.element_bytes
    fetch.into[chunk.vector].view[offset : offset + chunk.content.nbytes] = chunk.content


def _nothing() -> None:
    """A fetch on the CPU has landed when it is there; a replica that pauses may want nothing."""
