"""What a replica fetches from the parameter server: one thread asks all shards at once.

A fetch from a shard asks in windows, and places each chunk where it belongs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from disttrain.parameter_server.conversation import (
    ClientConfig,
    Conversation,
    Identity,
    ShardLink,
    Task,
    refusal,
)
from disttrain.parameter_server.messages import UNKNOWN, Side, Version
from disttrain.state.fragments import WHOLE, Fragment
from disttrain.state.share import Part
from disttrain.state.vector import BUFFERS, Vector
from disttrain.transport.header import Header, Verb
from disttrain.transport.interface import Buffer, Message, Slice

_ANY = 1 << 60
"""Samples, more than anybody has."""
WINDOW_CHUNKS = 4
"""Chunks asked for and not yet here: what a shard may have queued for one fetch."""
CHUNKS_PER_REQUEST = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchResult:
    """What the values are of."""

    versions: tuple[Version, ...]
    """Of every shard: the version of its first chunk; the others are of this one or a later one."""
    samples: int
    """Training samples in the values, of the shard that has applied the fewest."""
    buffers_changed: bool
    """Whether buffers were fetched that may differ from those of the last fetch."""
    fragment: Fragment = WHOLE
    """What was fetched of what is trained."""


class FetchTask(Task):
    """Some vectors' chunks from one shard; its next incarnation is asked for all of them again."""

    def __init__(
        self,
        link: ShardLink,
        identity: Identity,
        number: int,
        into: Mapping[Vector, Buffer],
        fragment: Fragment = WHOLE,
        steps: int = 0,
    ) -> None:
        self.version = UNKNOWN
        """Of the first chunk: every other one is of this version or a later one."""
        self.samples = 0
        """Training samples in that version."""
        self._link = link
        self._into = into
        self._fragment = fragment
        said = 0 if fragment == WHOLE else fragment.on_the_wire
        self._header = identity.header(Verb.FETCH)._replace(sequence=number, fragment=said)
        self._steps = steps
        self._requests: list[list[Part]] = []
        self._expected: dict[tuple[int, int], Part] = {}
        self._asked = 0
        self._on_the_way = 0
        self._begin()

    def destination(self, header: Header) -> memoryview | None:
        part = self._part(header)
        if part is None:
            return None
        return self._into[part.vector].view[part.offset : part.offset + part.nbytes]

    def welcomed(self, message: Message) -> None:
        del message
        self._begin()

    def send_more(self) -> bool:
        first = self._asked
        while self._asked < len(self._requests):
            request = self._requests[self._asked]
            is_full = self._on_the_way and self._on_the_way + len(request) > WINDOW_CHUNKS
            if is_full or not self._send(request):
                break
            self._asked += 1
            self._on_the_way += len(request)
        return self._asked > first

    def take(self, message: Message) -> None:
        header = message.header
        if header.sequence != self._header.sequence:
            return
        if header.verb == Verb.REFUSED:
            raise refusal(self._link, message)
        part = self._part(header)
        # The transport put it where it belongs; a chunk that came otherwise is not used.
        if part is None or message.payload.nbytes != part.nbytes:
            return
        del self._expected[(header.vector, header.chunk)]
        self._on_the_way -= 1
        if self.version == UNKNOWN:
            self.version = Version(header.version_incarnation, header.version)
            self.samples = header.samples
        self.is_done = not self._expected

    def _begin(self) -> None:
        share = self._link.share
        if share is None:
            return
        if not self._expected or self.version.incarnation not in (0, self._link.incarnation):
            missing = share.all_chunks(self._into, self._fragment)
            self.version = UNKNOWN
        else:
            missing = list(self._expected.values())
        number = share.placement.number
        self._expected = {(number(part.vector), part.chunk): part for part in missing}
        self._requests = _runs(missing)
        self._asked = self._on_the_way = 0

    def _part(self, header: Header) -> Part | None:
        """The expected chunk that an answer holds."""
        if header.verb != Verb.FETCHED or header.sequence != self._header.sequence:
            return None
        part = self._expected.get((header.vector, header.chunk))
        same = part is not None and (part.first, part.count) == (header.first, header.count)
        return part if same and header.incarnation == self._link.incarnation else None

    def _send(self, request: Sequence[Part]) -> bool:
        first = request[0]
        header = self._header._replace(
            vector=self._link.placement.number(first.vector),
            element_type=first.vector.element_type,
            chunk=first.chunk,
            first=first.first,
            count=len(request),
            # By its first chunk: that one says which version the fetch is of.
            local_steps=self._steps if request is self._requests[0] else 0,
        )
        nbytes = sum(part.nbytes for part in request)
        into = Slice(self._into[first.vector], first.offset, nbytes)
        return self._link.send(header, into=into)


def _runs(missing: Sequence[Part]) -> list[list[Part]]:
    """Neighbouring chunks, a few at a time; they lie side by side in the vector."""
    runs: list[list[Part]] = []
    for part in missing:
        before = runs[-1][-1] if runs else None
        is_next = (
            before is not None
            and (before.vector, before.chunk + 1) == (part.vector, part.chunk)
            and before.first + before.count == part.first
        )
        if is_next and len(runs[-1]) < CHUNKS_PER_REQUEST:
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


class FetchClient(Conversation):
    """Used by one thread, except `stop`."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config, Side.FETCH)
        self._number = 0
        self._versions: tuple[Version, ...] = ()

    def fetch(
        self, into: Mapping[Vector, Buffer], fragment: Fragment = WHOLE, *, steps: int = 0
    ) -> FetchResult:
        """Fill the buffers (whole vectors); blocks until every shard has answered.

        `fragment`: of what is trained nothing else is filled. `steps`: as in `Header.local_steps`.
        No chunk is torn. Raises Fenced, RequestRefused and ShardsAway; then what lies in the
        buffers is of no use.
        """
        self._number += 1
        tasks = self._fetch(self._number, into, fragment, steps)
        versions = tuple(task.version for task in tasks)
        has_buffers = any(vector.name == BUFFERS for vector in into)
        changed = has_buffers and versions != self._versions
        self._versions = versions
        # A partition that trains nothing has no shards: whatever the others have, it has too.
        samples = min((task.samples for task in tasks), default=_ANY)
        return FetchResult(
            versions=versions, samples=samples, buffers_changed=changed, fragment=fragment
        )

    def fetch_trial(self, evaluation: int, trial: Vector, into: Buffer) -> None:
        """Fill the buffer with the point of an evaluation that is under way. As `fetch`.

        Raises EvaluationOver, too.
        """
        self._fetch(evaluation, {trial: into})

    def _fetch(
        self,
        number: int,
        into: Mapping[Vector, Buffer],
        fragment: Fragment = WHOLE,
        steps: int = 0,
    ) -> list[FetchTask]:
        identity = self._config.identity
        return self.ask(lambda link: FetchTask(link, identity, number, into, fragment, steps))
