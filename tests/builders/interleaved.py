"""A shard whose senders fetch and push chunk by chunk, each in between the others.

And the same in double precision, without shard, messages and headers: what a rule should do.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from builders import checkpoints, downpour_shards, placements
from builders.placements import PARAMETERS
from builders.transports import a_header
from disttrain.holder import writing
from disttrain.holder.restoring import Wanted
from disttrain.job.staleness import Staleness
from disttrain.parameter_server import restoring
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.shard import Shard
from disttrain.parameter_server.update_rule import Rule
from disttrain.state.placement import TRAINED
from disttrain.transport.header import ElementType, Header, Reason, Verb

ELEMENTS, CHUNK = 100, 32
CUTS = [slice(first, min(first + CHUNK, ELEMENTS)) for first in range(0, ELEMENTS, CHUNK)]
SENDERS = 4
TARGET = torch.linspace(-1.0, 1.0, ELEMENTS, dtype=torch.float64)
"""The loss is half the squared distance to it."""


@dataclass
class Sender:
    """What one replica knows."""

    index: int
    given: Tensor = field(default_factory=lambda: torch.zeros(ELEMENTS))
    version: tuple[int, int] = (0, 0)
    fetches: int = 0
    pushes: int = 0
    staleness: list[int] = field(default_factory=list)

    @property
    def mean_staleness(self) -> float:
        known = [each for each in self.staleness if each >= 0]
        return sum(known) / max(1, len(known))


class Expected:
    """One rule in double precision, on what a shard is told in the same order."""

    def __init__(self) -> None:
        self.parameters = torch.zeros(ELEMENTS, dtype=torch.float64)

    def push(self, cut: slice, gradient: Tensor, staleness: int, sender: Sender) -> None:
        raise NotImplementedError

    def fetch(self, cut: slice, sender: Sender, mean_staleness: float) -> Tensor:
        del sender, mean_staleness
        return self.parameters[cut]

    def restart(self) -> None:
        """The shard has come back from a checkpoint."""


class Interleaved:
    """The shard, its senders, and what is expected of both."""

    def __init__(
        self, rule: Rule[Any], expected: Expected, seed: int, *, staleness: Staleness | None = None
    ) -> None:
        self.chance = random.Random(seed)
        self.expected = expected
        self.count = 0
        self.senders = [Sender(index) for index in range(SENDERS)]
        self._rule = rule
        self._remedies = staleness
        self._incarnation = 1
        self.shard = self._begun()
        self.shard.state.is_initialised = True
        self._doing = [self._work(sender) for sender in self.senders]

    @property
    def values(self) -> Tensor:
        values = self.shard.state.values
        assert values is not None
        return values.tensor(PARAMETERS)

    @property
    def _named(self) -> tuple[str, ...]:
        """What is beside the parameters; what senders fetch comes last."""
        config = self._rule.config
        served = () if config.serves is None else (config.serves,)
        return (*config.kept, *config.pushed, *served)

    @property
    def _fetched(self) -> int:
        return TRAINED if self._rule.config.serves is None else TRAINED + len(self._named)

    @property
    def _pushed(self) -> list[int]:
        """Vectors of which a push has a chunk each, one after the other."""
        config = self._rule.config
        return [*(TRAINED + 1 + self._named.index(name) for name in config.pushed), TRAINED]

    def run(self, chunks: int) -> None:
        for _ in range(chunks):
            next(self.chance.choice(self._doing))
        assert self.shard.state.count == self.count
        assert torch.allclose(self.values.double(), self.expected.parameters, atol=1e-5)

    def restart(self, folder: Path) -> None:
        """From a checkpoint of now, pushes that are under way included."""
        state, rule = self.shard.state, self._rule.config
        assert state.values is not None
        cut = writing.cut(1, state.values, state.notes())
        checkpoint = checkpoints.commit_cuts(folder, [cut], rule.name)
        wanted = Wanted(
            share=state.values.share,
            makers={rule.name: downpour_shards.with_state(rule.kept)},
            tables=restoring.TABLES,
        )
        restored = restoring.restore([checkpoint], wanted)
        assert restored is not None
        self._incarnation += 1
        self.shard = self._begun()
        self.shard.restore(restored)
        self.expected.restart()

    def _begun(self) -> Shard:
        state = ShardState(index=0, incarnation=self._incarnation, live_replicas=SENDERS)
        shard = downpour_shards.build(state, self._rule, staleness=self._remedies)
        placement = placements.a_placement({PARAMETERS: ELEMENTS}, 1, self._named)
        shard.configure(placement, 4 * CHUNK)
        for index in range(SENDERS):
            shard.admit(SenderIncarnation(index, 1))
        return shard

    def _work(self, sender: Sender) -> Iterator[None]:
        """Fetches and pushes in turn, for ever; one chunk at a time."""
        while True:
            yield from self._fetch(sender)
            yield from self._push(sender)

    def _fetch(self, sender: Sender) -> Iterator[None]:
        sender.fetches += 1
        chunk, incarnation, mean = 0, 0, 0.0
        while chunk < len(CUTS):
            if incarnation != self._incarnation:
                # From another incarnation of the shard everything is asked for again.
                chunk, incarnation, mean = 0, self._incarnation, sender.mean_staleness
                sender.version = incarnation, self.count
            asked = self._header(Verb.FETCH, sender, sender.fetches, chunk)
            asked = asked._replace(count=1, vector=self._fetched)
            (answer,) = self.shard.handle(asked, memoryview(b""))
            given = torch.frombuffer(bytearray(answer.payload), dtype=torch.float32)
            wanted = self.expected.fetch(CUTS[chunk], sender, mean)
            assert torch.allclose(given.double(), wanted, atol=1e-5)
            sender.given[CUTS[chunk]] = given
            chunk += 1
            yield

    def _push(self, sender: Sender) -> Iterator[None]:
        sender.pushes += 1
        gradient = sender.given - TARGET.float()
        first = self._staleness(sender)
        for chunk, cut in enumerate(CUTS):
            if chunk == 0:
                first = self._staleness(sender)
            for place, vector in enumerate(self._pushed):
                self._send(sender, (chunk, place), gradient, vector)
            self.expected.push(cut, gradient[cut].double(), first, sender)
            if chunk == len(CUTS) - 1:
                sender.staleness.append(self._staleness(sender))
                self.count += 1
            yield

    def _send(
        self, sender: Sender, numbers: tuple[int, int], gradient: Tensor, vector: int
    ) -> None:
        """One chunk: of the gradient, or of gradient^2 * what it was computed on."""
        (chunk, place), kinds = numbers, len(self._pushed)
        sent = gradient if vector == TRAINED else gradient * gradient * sender.given
        cut = CUTS[chunk]
        asked = self._header(Verb.PUSH, sender, sender.pushes, kinds * chunk + place)._replace(
            vector=vector,
            chunks=kinds * len(CUTS),
            first=cut.start,
            count=cut.stop - cut.start,
            samples=8,
        )
        payload = sent[cut].contiguous().numpy().data.cast("B")
        for answer in self.shard.handle(asked, payload):
            assert answer.header.verb == Verb.PUSHED, Reason(answer.header.reason)

    def _staleness(self, sender: Sender) -> int:
        incarnation, count = sender.version
        return self.count - count if incarnation == self._incarnation else -1

    def _header(self, verb: Verb, sender: Sender, number: int, chunk: int) -> Header:
        incarnation, count = sender.version
        return a_header(
            verb,
            sender=sender.index,
            incarnation=1,
            receiver_incarnation=self._incarnation,
            version_incarnation=incarnation,
            version=count,
            sequence=number,
            vector=TRAINED,
            element_type=ElementType.FLOAT32,
            chunk=chunk,
            chunks=len(CUTS),
        )


def reach(momentum: float, mean_staleness: float) -> float:
    """Sum of momentum ** s for s from 1 to S + 1."""
    return sum(momentum**power for power in range(1, math.floor(mean_staleness) + 2))
