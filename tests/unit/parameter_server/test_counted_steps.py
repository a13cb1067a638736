"""A rule that goes by how many updates an element has had, whatever happens to pushes."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from builders import checkpoints, downpour_shards, placements
from builders.interleaved import ELEMENTS, Expected, Interleaved, Sender
from builders.placements import PARAMETERS
from builders.transports import a_header
from disttrain.holder import writing
from disttrain.holder.restoring import Wanted
from disttrain.job.update_rules.adamw import AdamW
from disttrain.job.update_rules.sgd import Sgd
from disttrain.parameter_server import restoring
from disttrain.parameter_server.arithmetic import rule_for
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import Answer, ShardState
from disttrain.parameter_server.presence import MARK
from disttrain.parameter_server.shard import Shard
from disttrain.state.placement import TRAINED, Placement
from disttrain.state.share import Share
from disttrain.transport.header import ElementType, Reason, Verb

RULE = AdamW(learning_rate=0.05, weight_decay=0.1)
LENGTH, CHUNK = 320, 32


class AdamWOfElements:
    """In double precision, each element by itself."""

    def __init__(self, elements: int) -> None:
        self.parameters, self.first, self.second, self.steps = torch.zeros(
            4, elements, dtype=torch.float64
        )

    def update(self, cut: slice, gradient: Tensor) -> None:
        parameters, first, second = (
            vector[cut] for vector in (self.parameters, self.first, self.second)
        )
        self.steps[cut] += 1
        parameters.mul_(1 - RULE.learning_rate * RULE.weight_decay)
        first.mul_(RULE.beta1).add_(gradient, alpha=1 - RULE.beta1)
        second.mul_(RULE.beta2).addcmul_(gradient, gradient, value=1 - RULE.beta2)
        mean = first / (1 - RULE.beta1 ** self.steps[cut])
        root = (second / (1 - RULE.beta2 ** self.steps[cut])).sqrt() + RULE.epsilon
        parameters.sub_(RULE.learning_rate * mean / root)


class AmongSenders(Expected):
    def __init__(self) -> None:
        self.rule = AdamWOfElements(ELEMENTS)
        self.parameters = self.rule.parameters

    def push(self, cut: slice, gradient: Tensor, staleness: int, sender: Sender) -> None:
        del staleness, sender
        self.rule.update(cut, gradient)


@pytest.mark.parametrize("seed", range(5))
def test_chunks_of_several_pushes_count_one_by_one_and_go_on_from_a_checkpoint(
    seed: int, tmp_path: Path
) -> None:
    run = Interleaved(rule_for(RULE), AmongSenders(), seed)
    run.run(103)
    while not any(each.is_partial for each in run.shard.state.deliveries.copy().values()):
        run.run(1)

    run.restart(tmp_path)

    run.run(200)


class Pushing:
    """A shard and a sender that is in no other."""

    def __init__(self, shard: Shard, expected: AdamWOfElements, sequence: int = 0) -> None:
        self.shard = shard
        self.expected = expected
        self.sequence = sequence
        self.share = shard.stage.values.share
        self._generator = torch.Generator().manual_seed(self.share.holder)

    def gradients(self) -> Iterator[Tensor]:
        for number in range(self.share.num_chunks(PARAMETERS)):
            yield torch.randn(self.share.chunk(PARAMETERS, number).count, generator=self._generator)

    def send(self, number: int, gradient: Tensor) -> list[Answer]:
        part = self.share.chunk(PARAMETERS, number)
        header = a_header(
            Verb.PUSH,
            sender=0,
            incarnation=1,
            receiver_incarnation=1,
            version_incarnation=1,
            sequence=self.sequence,
            vector=TRAINED,
            element_type=ElementType.FLOAT32,
            chunk=number,
            chunks=self.share.num_chunks(PARAMETERS),
            first=part.first,
            count=part.count,
            samples=8,
        )
        return list(self.shard.handle(header, gradient.numpy().data.cast("B")))

    def push(self, chunks: int | None = None, *, copies: int = 1) -> None:
        """The next push, or so many of its chunks, each of them sent so often."""
        self.sequence += 1
        for number, gradient in list(enumerate(self.gradients()))[:chunks]:
            part = self.share.chunk(PARAMETERS, number)
            for _ in range(copies):
                self.send(number, gradient)
            self.expected.update(slice(part.first, part.first + part.count), gradient.double())

    def assert_right(self) -> None:
        held = self.share.range_of(PARAMETERS)
        found = self.shard.stage.values.tensor(PARAMETERS).double()
        wanted = self.expected.parameters[held.first : held.end]
        assert torch.allclose(found, wanted, rtol=1e-5, atol=1e-6)
        runs = self.shard.state.steps.within(held.first, held.end)
        steps = [run.steps for run in runs for _ in range(run.first, run.end)]
        assert steps == self.expected.steps[held.first : held.end].tolist()


def a_shard(placement: Placement, index: int) -> Shard:
    state = ShardState(index=index, incarnation=1, is_initialised=True)
    shard = downpour_shards.build(state, RULE)
    shard.configure(placement, 4 * CHUNK)
    shard.admit(SenderIncarnation(0, 1))
    return shard


def a_placement(shards: int) -> Placement:
    return placements.a_placement({PARAMETERS: LENGTH}, shards, RULE.kept)


def begun(shards: int) -> list[Pushing]:
    expected = AdamWOfElements(LENGTH)
    return [Pushing(a_shard(a_placement(shards), index), expected) for index in range(shards)]


def test_a_chunk_that_comes_again_is_counted_once() -> None:
    (one,) = begun(1)
    for _ in range(3):
        one.push(copies=2)
    one.assert_right()


def test_what_was_applied_of_a_push_that_is_refused_counts() -> None:
    (one,) = begun(1)
    one.push(2)
    (answer,) = one.send(2, torch.full((CHUNK,), math.nan))
    assert answer.header.reason == Reason.NOT_FINITE

    one.push()

    one.assert_right()
    assert {one.expected.steps[0].item(), one.expected.steps[-1].item()} == {2, 1}


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (3, 1), (1, 2)])
def test_other_shards_go_on_with_the_steps_of_each_element(
    before: int, after: int, tmp_path: Path
) -> None:
    old = begun(before)
    for pushing in old:
        for _ in range(3 + pushing.share.holder):
            pushing.push()
        pushing.push(1 + pushing.share.holder)
    states = [pushing.shard.state for pushing in old]
    cuts = [
        writing.cut(1, pushing.shard.stage.values, state.notes())
        for pushing, state in zip(old, states, strict=True)
    ]
    checkpoint = checkpoints.commit_cuts(tmp_path, cuts, RULE.name)

    for index in range(after):
        wanted = Wanted(
            share=Share(a_placement(after), index, 4 * CHUNK),
            makers={RULE.name: downpour_shards.with_state(RULE.kept)},
            tables=restoring.TABLES,
        )
        restored = restoring.restore([checkpoint], wanted)
        assert restored is not None
        shard = a_shard(a_placement(after), index)
        shard.restore(restored)
        known = shard.state.deliveries.of(0, 1)
        pushing = Pushing(shard, old[0].expected, known.sequence)
        pushing.assert_right()
        if not known.is_partial:
            pushing.push()
            pushing.assert_right()


def test_a_checkpoint_of_a_rule_that_does_not_count_has_no_counts() -> None:
    shard = downpour_shards.build(
        ShardState(index=0, incarnation=1, is_initialised=True), Sgd(learning_rate=0.1)
    )
    shard.configure(placements.a_placement({PARAMETERS: LENGTH}, 1), 4 * CHUNK)
    shard.admit(SenderIncarnation(0, 1))
    one = Pushing(shard, AdamWOfElements(LENGTH))
    one.push()

    assert shard.state.count == 1
    assert set(shard.state.notes().tables) == {"deliveries"}


def test_elements_without_a_gradient_stay_and_are_not_counted() -> None:
    (one,) = begun(1)
    one.push()
    one.sequence += 1
    for number, gradient in enumerate(one.gradients()):
        first = one.share.chunk(PARAMETERS, number).first
        there = slice(0, 0) if number == 1 else slice(5, 20)
        sent = torch.full_like(gradient, MARK)
        sent[there] = gradient[there]
        one.send(number, sent)
        one.expected.update(
            slice(first + there.start, first + there.stop), gradient[there].double()
        )
    one.assert_right()
    one.push()
    one.assert_right()


def test_a_chunk_with_more_runs_than_parameters_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("disttrain.parameter_server.presence.MOST_RUNS", 3)
    (one,) = begun(1)
    one.sequence = 1

    (answer,) = one.send(0, torch.tensor([1.0, MARK]).repeat(CHUNK // 2))

    assert answer.header.reason == Reason.MALFORMED
    assert b"16 runs of elements with a gradient; at most 3 may be" in bytes(answer.payload)
    one.assert_right()
