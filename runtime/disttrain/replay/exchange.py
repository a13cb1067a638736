"""The way between a replayed replica and the replayed shards: what threads and sockets are else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from torch import Tensor

from disttrain.parameter_server.client import FetchResult, Push, Version
from disttrain.replay.comparing import ComparingLedger
from disttrain.replica.changed_buffers import ChangedBuffers
from disttrain.replica.flat_model import FlatModel, Outgoing
from disttrain.replica.ledger import Kind
from disttrain.replica.push_thread import Departure, push_of
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


class ReplayedPushes:
    """In the place of `PushThread`."""

    def __init__(self, model: FlatModel, shards: Shards, count: int) -> None:
        self.sequence = 0
        self.under_way: dict[int, PushUnderWay] = {}
        self.computed_on: Tensor | None = None
        """Of the gradients accrued since the last push."""
        self.items: list[WorkItem] = []
        self._shards = shards
        self._count = count
        self._changed = ChangedBuffers(model.tensors, model.buffer_values())
        self._free = list(model.outgoing)

    def acquire(self) -> Outgoing:
        """A buffer whose push was applied by all shards."""
        while not self._free:
            self._shards.finish_push(next(iter(self.under_way.values())))
        return self._free.pop(0)

    def submit(self, departure: Departure) -> None:
        """The push lies ready for the shards."""
        outgoing, computed_on, items = departure.outgoing, self.computed_on, tuple(self.items)
        self.computed_on = None
        self.items.clear()
        if outgoing is None or computed_on is None:
            return
        outgoing.leave()
        outgoing.wait_left()
        self.sequence += 1
        self.under_way[self.sequence] = PushUnderWay(
            push=push_of(departure, outgoing, self.sequence, self._changed),
            outgoing=outgoing,
            computed_on=computed_on,
            items=items,
            waiting=set(range(self._count)),
        )

    def wait_answered(self) -> None:
        """Nothing waits: the record says what came before what."""

    def answered(self, number: int, shard: int) -> PushUnderWay | None:
        """A shard has applied or refused a push; the push if it was the last of them."""
        push = self.under_way[number]
        push.waiting.discard(shard)
        if push.waiting:
            return None
        self._free.append(push.outgoing)
        return self.under_way.pop(number)


class ReplayedFetches:
    """In the place of `FetchThread`."""

    last_seconds = 0.0

    def __init__(self, shards: Shards, shares: Sequence[Share], ledger: ComparingLedger) -> None:
        self.number = 0
        self.current: FetchUnderWay | None = None
        self._shards = shards
        self._shares = shares
        self._ledger = ledger
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
        return self.wait() if self._ledger.following_kind == Kind.ADOPTED else None

    def wait(self) -> FetchResult | None:
        """What was asked for."""
        fetch = self.current
        if fetch is None:
            return None
        self._shards.finish_fetch(fetch)
        self.current = None
        self._land()
        versions = tuple(fetch.versions[shard] for shard in range(len(self._shares)))
        has_buffers = any(vector.name == BUFFERS for vector in fetch.into)
        changed = has_buffers and versions != self._versions
        self._versions = versions
        samples = min(fetch.samples.values())
        return FetchResult(versions=versions, samples=samples, buffers_changed=changed)


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
    """A fetch on the CPU has landed when it is there."""
