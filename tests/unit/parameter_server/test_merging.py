"""A shard that merges by a quorum: exact accounts, beside a serial reference of the same events."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from builders import placements
from builders.jobs import a_job
from builders.transports import a_chunk_header
from disttrain.holder import writing
from disttrain.parameter_server import restoring, strategies
from disttrain.parameter_server.holder_side import Answer, ShardState
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.restoring import RestoredShard
from disttrain.parameter_server.shard import Shard
from disttrain.state.share import Share
from disttrain.state.vector import Vector
from disttrain.transport.header import Header, Reason, Verb

CHUNK, CHUNKS, REPLICAS = 4, 3, 4
ELEMENTS = CHUNK * CHUNKS
OWN = placements.PARAMETERS.beside("own")
RATE, MOMENTUM = 0.7, 0.9


class Merging:
    """A shard of 12 elements, all 0 at first; its clock stands still until a test moves it."""

    def __init__(self, adopt: str = "replace", live: Sequence[int] = range(REPLICAS)) -> None:
        local = (
            f"{{quorum: 2, graceSeconds: 5, adopt: {adopt}, "
            f"outer: {{nesterov: {{learningRate: {RATE}, momentum: {MOMENTUM}}}}}}}"
        )
        self.job = a_job(
            "spec.strategy.downpour=null",
            f"spec.strategy.localSteps={local}",
            f"spec.replicas.count={REPLICAS}",
        )
        self.now = 100.0
        self.layout = placements.a_placement({placements.PARAMETERS: ELEMENTS, OWN: ELEMENTS}, 1)
        self.incarnations = dict.fromkeys(range(REPLICAS + 1), 1)
        self.live = dict.fromkeys(live, 1)
        self.sequences = dict.fromkeys(range(REPLICAS + 1), 0)
        self._open(None)

    def _open(self, restored: RestoredShard | None) -> None:
        self.state = ShardState(index=0, incarnation=1, clock=lambda: self.now)
        self.shard = Shard(strategies.stages(self.job.spec, self.state, Records(incarnation=1)))
        if restored is None:
            self.shard.configure(self.layout, 4 * CHUNK)
            self.shard.initialise()
        else:
            self.shard.restore(restored)
        self.shard.admit_only(self.live)

    def restart(self) -> None:
        """From a picture of this moment."""
        assert self.state.values is not None
        notes = writing.cut(1, self.state.values, self.state.notes()).notes
        make = strategies.makers(self.job.spec)["merged_nesterov"]
        values = make(Share(self.layout, 0, 4 * CHUNK), {})
        for vector, tensor in self.state.values.vectors.items():
            values.tensor(vector).copy_(tensor)
        self._open(
            RestoredShard(
                checkpoint=1,
                update_rule="merged_nesterov",
                values=values,
                version=notes.version,
                samples=self.state.samples,
                delivered=restoring.delivered_of(notes),
                gathered=restoring.gathered_of([notes]),
            )
        )

    def replace(self, live: Sequence[int]) -> None:
        """All others are dead; who was dead begins anew."""
        for sender in set(live) - self.live.keys():
            self.incarnations[sender] += 1
            self.sequences[sender] = 0
        self.live = {sender: self.incarnations[sender] for sender in live}
        self.shard.admit_only(self.live)
        self.pass_time(0.0)

    def header(self, verb: Verb, sender: int) -> Header:
        header = a_chunk_header(verb, CHUNK, incarnation=1, receiver_incarnation=1)
        return header._replace(sender=sender, incarnation=self.incarnations[sender])

    def chunk(self, sender: int, place: int, difference: Tensor, samples: int) -> list[Answer]:
        """One of the push that is under way."""
        first = place * CHUNK
        header = self.header(Verb.PUSH, sender)._replace(
            sequence=self.sequences[sender] + 1,
            chunks=CHUNKS,
            chunk=place,
            first=first,
            samples=samples,
        )
        payload = difference[first : first + CHUNK].contiguous().numpy().data.cast("B")
        return list(self.shard.handle(header, payload))

    def push(self, sender: int, difference: Tensor, samples: int = 8) -> None:
        for place in range(CHUNKS):
            answers = self.chunk(sender, place, difference, samples)
        assert answers[-1].header.reason == Reason.NONE
        self.sequences[sender] += 1

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.shard.stage.advance()

    def fetch(self, sender: int, vector: Vector = OWN) -> Tensor | None:
        """None: it is to be asked for again."""
        header = self.header(Verb.FETCH, sender)._replace(
            vector=self.layout.number(vector), count=CHUNKS
        )
        found = [
            torch.frombuffer(bytearray(answer.payload), dtype=torch.float32)
            for answer in self.shard.handle(header, memoryview(b""))
            if answer.header.verb == Verb.FETCHED
        ]
        return torch.cat(found) if found else None

    @property
    def parameters(self) -> Tensor:
        assert self.state.values is not None
        return self.state.values.tensor(placements.PARAMETERS).clone()


@dataclass
class Serial:
    """What the parameters are, event after event."""

    parameters: Tensor = field(default_factory=lambda: torch.zeros(ELEMENTS, dtype=torch.float64))
    velocity: Tensor = field(default_factory=lambda: torch.zeros(ELEMENTS, dtype=torch.float64))
    gathered: dict[int, tuple[Tensor, int]] = field(default_factory=dict)
    enough_since: float | None = None

    def push(self, sender: int, difference: Tensor, samples: int) -> None:
        before, count = self.gathered.get(sender, (torch.zeros(ELEMENTS), 0))
        self.gathered[sender] = (before + difference, count + samples)

    def look(self, live: set[int], now: float) -> None:
        present = set(self.gathered)
        if not present or (len(present) < 2 and live - present):
            return
        self.enough_since = now if self.enough_since is None else self.enough_since
        if live <= present or now - self.enough_since >= 5:
            self.merge()

    def merge(self) -> None:
        whole = sum(samples for _, samples in self.gathered.values())
        mean = sum(each.double() * samples / whole for each, samples in self.gathered.values())
        self.velocity = MOMENTUM * self.velocity + mean
        self.parameters = self.parameters - RATE * (mean + MOMENTUM * self.velocity)
        self.gathered.clear()
        self.enough_since = None


def near(found: Tensor, wanted: Tensor) -> None:
    assert float((found.double() - wanted).norm()) <= 1e-6 * max(1.0, float(wanted.norm()))


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_events_is_that_of_a_serial_loop(seed: int) -> None:
    """Pushes of several lengths, time, deaths and restarts of the shard."""
    chance, draw = random.Random(seed), torch.Generator().manual_seed(seed)
    one, serial = Merging(), Serial()
    for _ in range(200):
        match chance.choices(["push", "time", "death", "restart"], [8, 4, 1, 1])[0]:
            case "push" if one.live:
                sender, samples = chance.choice(list(one.live)), chance.choice([8, 16, 20])
                difference = torch.randn(ELEMENTS, generator=draw)
                one.push(sender, difference, samples)
                serial.push(sender, difference, samples)
            case "time":
                one.pass_time(chance.choice([0.5, 3.0]))
            case "death":
                one.replace(chance.sample(range(REPLICAS), chance.randint(2, 4)))
            case "restart":
                one.restart()
                serial.enough_since = None
                one.pass_time(0.0)
        serial.look(set(one.live), one.now)
        near(one.parameters, serial.parameters)
        assert one.state.gathered == {who: each[1] for who, each in serial.gathered.items()}


def test_a_chunk_that_comes_twice_counts_once_also_after_a_restart_between() -> None:
    one = Merging()
    difference = torch.arange(float(ELEMENTS))
    for place in (0, 0, 1):
        one.chunk(0, place, difference, 8)
    one.restart()
    for place in (1, 2, 2):
        one.chunk(0, place, difference, 8)
    one.sequences[0] += 1
    one.restart()
    one.push(1, difference)
    one.pass_time(0.0)
    assert one.state.samples == 16
    near(one.parameters, torch.zeros(ELEMENTS))

    one.pass_time(5.0)

    near(one.parameters, -RATE * (1 + MOMENTUM) * difference)
    assert one.state.gathered == {}


def test_who_has_pushed_goes_on_with_its_own_until_the_merge() -> None:
    one = Merging()
    difference = torch.ones(ELEMENTS)
    one.push(0, difference)
    one.pass_time(60.0)
    own, other = one.fetch(0), one.fetch(1)
    assert own is not None
    assert other is not None
    near(own, -difference)
    near(other, torch.zeros(ELEMENTS))


@pytest.mark.parametrize(("adopt", "seconds"), [("replace", 40.0), ("add", 5.0)])
def test_a_fetch_waits_for_the_merge_as_long_as_it_may(adopt: str, seconds: float) -> None:
    """Four times what the replica computed, or half of it where it computes meanwhile."""
    one = Merging(adopt)
    assert one.fetch(0) is not None
    one.pass_time(10.0)
    one.push(0, torch.ones(ELEMENTS))
    one.pass_time(seconds - 0.1)
    assert one.fetch(0) is None
    one.pass_time(0.2)
    assert one.fetch(0) is not None


def test_a_fetch_is_answered_by_the_merge() -> None:
    one = Merging()
    one.push(0, torch.ones(ELEMENTS))
    assert one.fetch(0) is None
    one.push(1, torch.ones(ELEMENTS))
    one.pass_time(5.0)
    found = one.fetch(0)
    assert found is not None
    near(found, one.parameters)


def test_what_evaluations_fetch_waits_for_nothing_and_ends_the_wait() -> None:
    one = Merging()
    one.push(0, torch.ones(ELEMENTS))
    assert one.fetch(0) is None
    assert one.fetch(0, placements.PARAMETERS) is not None
    assert one.fetch(0) is not None


def test_the_end_merges_what_is_there() -> None:
    one = Merging()
    one.push(0, torch.ones(ELEMENTS))
    near(one.parameters, torch.zeros(ELEMENTS))
    one.shard.stage.finish()
    assert float(one.parameters.max()) < 0


def test_a_picture_that_is_being_written_is_of_before_the_merge() -> None:
    one = Merging()
    one.push(0, torch.ones(ELEMENTS))
    assert one.state.values is not None
    cut = one.state.cut = writing.cut(1, one.state.values, one.state.notes())
    one.shard.stage.finish()
    written = {
        content.tensor.name: b"".join(bytes(each) for each in content.pieces)
        for content in writing.contents(cut)
    }
    assert written[str(placements.PARAMETERS)] == bytes(4 * ELEMENTS)
    assert any(written[str(placements.PARAMETERS.beside("gathered_0"))])


def test_a_replica_beyond_the_count_is_refused() -> None:
    one = Merging(live=range(REPLICAS + 1))
    (answer,) = one.chunk(REPLICAS, 0, torch.ones(ELEMENTS), 8)
    assert answer.header.reason == Reason.MALFORMED
