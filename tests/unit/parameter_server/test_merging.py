"""A shard that merges by a quorum: exact accounts, beside a serial reference of the same events."""

import random
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from builders import placements
from builders.merging_shards import GRACE_SECONDS, MOMENTUM, RATE, REPLICAS, Merging
from disttrain.holder import writing
from disttrain.parameter_server import quorum
from disttrain.parameter_server.quorum import Work
from disttrain.transport.header import Reason

ELEMENTS = 12


@dataclass
class Serial:
    """What one fragment's parameters are, event after event."""

    elements: int
    parameters: Tensor = field(init=False)
    velocity: Tensor = field(init=False)
    gathered: dict[int, tuple[Tensor, int, int]] = field(default_factory=dict)
    enough_since: float | None = None

    def __post_init__(self) -> None:
        self.parameters = torch.zeros(self.elements, dtype=torch.float64)
        self.velocity = torch.zeros(self.elements, dtype=torch.float64)

    def push(self, sender: int, difference: Tensor, samples: int, steps: int) -> None:
        before = self.gathered.get(sender, (torch.zeros(self.elements), 0, 0))
        self.gathered[sender] = (before[0] + difference, before[1] + samples, before[2] + steps)

    def look(self, live: set[int], now: float) -> None:
        present = set(self.gathered)
        if not present or (len(present) < 2 and live - present):
            return
        self.enough_since = now if self.enough_since is None else self.enough_since
        if live <= present or now - self.enough_since >= GRACE_SECONDS:
            self.merge()

    def merge(self) -> None:
        parts = {who: n * n / steps for who, (_, n, steps) in self.gathered.items()}
        mean = torch.zeros(self.elements, dtype=torch.float64)
        for who, (difference, _, _) in self.gathered.items():
            mean += difference.double() * parts[who] / sum(parts.values())
        self.velocity = MOMENTUM * self.velocity + mean
        self.parameters = self.parameters - RATE * (mean + MOMENTUM * self.velocity)
        self.gathered.clear()
        self.enough_since = None


def near(found: Tensor, wanted: Tensor) -> None:
    assert float((found.double() - wanted).norm()) <= 1e-6 * max(1.0, float(wanted.norm()))


@pytest.mark.parametrize(("elements", "fragments"), [(ELEMENTS, 1), (460, 3)])
@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_events_is_that_of_a_serial_loop(
    seed: int, elements: int, fragments: int
) -> None:
    """Pushes of several lengths, time, deaths and restarts of the shard; each fragment alone."""
    chance, draw = random.Random(seed), torch.Generator().manual_seed(seed)
    one = Merging(elements=elements, fragments=fragments)
    places = [
        torch.cat([torch.arange(run.first, run.end) for run in each.runs(elements)])
        for each in one.fragments
    ]
    serial = [Serial(len(place)) for place in places]
    for _ in range(200):
        match chance.choices(["push", "time", "death", "restart"], [8, 4, 1, 1])[0]:
            case "push" if one.live:
                sender, steps = chance.choice(list(one.live)), chance.randint(1, 3)
                samples, number = 8 * steps - chance.choice([0, 3]), chance.randrange(fragments)
                difference = torch.randn(elements, generator=draw)
                one.push(sender, difference, samples, steps, number)
                serial[number].push(sender, difference[places[number]], samples, steps)
            case "time":
                one.pass_time(chance.choice([0.5, 3.0]))
            case "death":
                one.replace(chance.sample(range(REPLICAS), chance.randint(2, 4)))
            case "restart":
                one.restart()
                for each in serial:
                    each.enough_since = None
                one.pass_time(0.0)
        for number, each in enumerate(serial):
            each.look(set(one.live), one.now)
            near(one.parameters[places[number]], each.parameters)
            gathered = {who: Work(n, steps) for who, (_, n, steps) in each.gathered.items()}
            assert one.state.gathered.get(number, {}) == gathered


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


@pytest.mark.parametrize("fragments", [1, 3])
def test_replicas_that_push_at_different_times_are_merged_once_a_round(fragments: int) -> None:
    """Else stale pushes and new ones make a quorum together, and a round has several merges."""
    elements = 460
    one = Merging("add", elements=elements, fragments=fragments, grace="null")
    draw, serial = torch.Generator().manual_seed(1), Serial(elements)
    for sender in one.live:
        assert one.fetch(sender) is not None
    one.pass_time(8.0 / fragments)
    place = torch.cat([torch.arange(run.first, run.end) for run in one.fragments[0].runs(elements)])
    for _ in range(3):
        for number in range(fragments):
            for sender in one.live:
                difference = torch.randn(elements, generator=draw)
                one.push(sender, difference, number=number)
                if number == 0:
                    serial.push(sender, difference, 8, 1)
                one.pass_time(1.0 / fragments)
            if number == 0:
                serial.merge()
            near(one.parameters[place], serial.parameters[place])
            one.pass_time(4.0 / fragments)


@pytest.mark.parametrize(
    ("adopt", "fragments", "seconds"), [("add", 1, 4.0), ("add", 3, 12.0), ("replace", 1, 0.0)]
)
def test_the_window_is_as_long_as_replicas_have_time(
    adopt: str, fragments: int, seconds: float
) -> None:
    """Half of the faster one's turns, of eight seconds each; who waits for the merge has none."""
    elements = 460
    one = Merging(adopt, elements=elements, fragments=fragments, grace="null")
    assert one.fetch(0) is not None
    one.pass_time(2.0)
    assert one.fetch(1) is not None
    one.pass_time(8.0)
    one.push(0, torch.ones(elements))
    one.push(1, torch.ones(elements))
    if seconds:
        one.pass_time(seconds - 0.1)
        assert one.state.gathered
        one.pass_time(0.2)
    assert not one.state.gathered


def rounds_of(*pushes: tuple[int, float], fragments: int) -> float | None:
    rounds = quorum.Rounds(fragments)
    for fragment, at in pushes:
        rounds.pushed(fragment, at, None)
    return rounds.seconds


TURNS = [(number % 4, 2.0 * number) for number in range(12)]
"""Pushes of four fragments, of which each has its turn in eight seconds."""


@pytest.mark.parametrize(
    "more",
    [
        [],
        [(fragment, 22.0 + fragment / 100) for fragment in range(4)],
        [(fragment, 86.0 + 2.0 * fragment) for fragment in range(4)],
    ],
    ids=["in turn", "all of them at the end of an epoch", "after a pause"],
)
def test_a_round_is_what_fragments_take_as_a_rule(more: list[tuple[int, float]]) -> None:
    assert rounds_of(*TURNS, *more, fragments=4) == 8.0


def test_a_round_is_not_known_before_a_fragment_has_come_twice() -> None:
    assert rounds_of(*TURNS[:4], fragments=4) is None
    assert rounds_of(*TURNS[:5], fragments=4) == 8.0


def test_a_window_that_a_pause_has_made_long_ends_as_soon_as_a_round_is_short_again() -> None:
    one = Merging("add", grace="null")
    assert one.fetch(0) is not None
    one.pass_time(100.0)
    for sender in (0, 1):
        one.push(sender, torch.ones(ELEMENTS))
    one.pass_time(8.0)
    assert one.state.gathered
    for _ in range(2):
        one.push(0, torch.ones(ELEMENTS))
        one.pass_time(1.0)
    assert not one.state.gathered


def test_how_fast_a_replica_was_says_nothing_of_its_next_incarnation() -> None:
    one = Merging("add", grace="null")
    assert one.fetch(0) is not None
    one.pass_time(8.0)
    one.push(0, torch.ones(ELEMENTS))
    one.replace([1, 2, 3])
    one.replace(range(REPLICAS))
    one.pass_time(8.0)
    one.push(0, torch.ones(ELEMENTS))
    one.push(1, torch.ones(ELEMENTS))
    assert not one.state.gathered


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


@pytest.mark.parametrize(
    ("samples", "steps"), [(33, 1), (2**39, 1), (2**39, 32), (8, 0), (8, 33), (8, 2**32 - 1)]
)
def test_nobody_weighs_more_than_a_replica_can_have_done(samples: int, steps: int) -> None:
    """Of up to 32 steps with batches of 32."""
    one = Merging()
    (answer,) = one.chunk(0, 0, torch.ones(ELEMENTS), samples, steps, counted=8)
    assert answer.header.reason == Reason.MALFORMED
    assert f"is of {steps} steps and {samples} samples" in bytes(answer.payload).decode()

    one.push(1, torch.ones(ELEMENTS), 32 * 32, 32)
    assert one.state.gathered == {0: {1: Work(32 * 32, 32)}}


def test_weights_are_samples_times_samples_of_a_step() -> None:
    """The paper's: who has seen as many samples in fewer steps has seen them in larger batches."""
    work = {0: Work(64, 8), 1: Work(64, 4), 2: Work(32, 4)}
    assert quorum.weights(work) == {0: 2 / 7, 1: 4 / 7, 2: 1 / 7}


def test_weights_are_by_samples_where_an_earlier_version_has_not_noted_steps() -> None:
    assert quorum.weights({0: Work(64, 0), 1: Work(192, 4)}) == {0: 0.25, 1: 0.75}


def test_a_push_after_one_of_an_earlier_version_leaves_the_steps_unknown() -> None:
    """Its steps alone would make each of its samples weigh as many times as all of them."""
    one = Merging()
    one.state.gathered[0] = {0: Work(64, 0)}
    one.push(0, torch.ones(ELEMENTS), 8, 1)
    assert one.state.gathered == {0: {0: Work(72, 0)}}


def test_a_table_of_an_earlier_version_is_read() -> None:
    """Which had neither steps nor fragments: both are 0."""
    assert quorum.from_rows([[0, 64, 0, 0], [2, 8, 0, 0]]) == {0: {0: Work(64, 0), 2: Work(8, 0)}}


def test_of_several_shards_a_replica_has_the_most_that_one_of_them_had() -> None:
    found = quorum.from_rows([[0, 64, 8, 1], [0, 72, 9, 1], [0, 8, 1, 0]])
    assert found == {0: {0: Work(8, 1)}, 1: {0: Work(72, 9)}}
    assert quorum.as_rows(found) == [[0, 8, 1, 0], [0, 72, 9, 1]]


def test_a_fetch_of_a_fragment_waits_for_its_own_merge_alone() -> None:
    one = Merging(elements=460, fragments=3)
    one.push(0, torch.ones(460), number=1)
    assert one.fetch(0, number=1) is None
    assert one.fetch(0) is None
    found = one.fetch(0, number=2)
    assert found is not None
    near(found, torch.zeros(len(found)))


@pytest.mark.parametrize("said", [0, 4, 255])
def test_a_push_of_a_fragment_that_is_none_is_refused(said: int) -> None:
    one = Merging(elements=460, fragments=3)
    (answer,) = one.chunk(0, 0, torch.ones(460), said=said)
    assert answer.header.reason == Reason.MALFORMED
    assert f"fragments is 3, got fragment {said}".encode() in bytes(answer.payload)


def test_a_chunk_of_another_fragment_is_refused() -> None:
    one = Merging(elements=460, fragments=3)
    (answer,) = one.chunk(0, 0, torch.ones(460), number=1, said=1)
    assert answer.header.reason == Reason.WRONG_LAYOUT


def test_where_there_are_no_fragments_none_is_taken() -> None:
    (answer,) = Merging().chunk(0, 0, torch.ones(ELEMENTS), said=1)
    assert answer.header.reason == Reason.MALFORMED
