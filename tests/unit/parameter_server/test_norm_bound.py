"""How far a push of local steps moves the parameters, whatever its sender says."""

import random

import pytest
import torch

from builders import placements
from builders.jobs import a_job
from builders.transports import a_chunk_header
from disttrain.parameter_server import strategies
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.norm_bound import ALLOWANCE, NormBound
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.reporting import Reporter
from disttrain.parameter_server.shard import Shard
from disttrain.transport.header import Header, Reason, Verb

CHUNK, CHUNKS, MOST = 4, 3, 2.0


class Pushing:
    """A shard with three chunks of four elements, all 0 at first, and who pushes to it."""

    def __init__(self, most: float | None = MOST) -> None:
        settings = "{}" if most is None else f"{{maximumNorm: {most}}}"
        job = a_job("spec.strategy.downpour=null", f"spec.strategy.localSteps={settings}")
        self.state = ShardState(index=0, incarnation=1, is_initialised=True)
        self.shard = Shard(strategies.stages(job.spec, self.state, Records(incarnation=1)))
        layout = placements.a_placement({placements.PARAMETERS: CHUNK * CHUNKS}, 1)
        self.shard.configure(layout, 4 * CHUNK)
        self.shard.admit(SenderIncarnation(0, 1))

    def push(self, number: int, chunks: list[torch.Tensor], scale: float = 1.0) -> list[Header]:
        """The answers to a push, chunk by chunk; they may be none."""
        header = a_chunk_header(Verb.PUSH, CHUNK, incarnation=1, receiver_incarnation=1)
        header = header._replace(sequence=number, chunks=CHUNKS, scale=scale, samples=8)
        answers: list[Header] = []
        for place, chunk in enumerate(chunks):
            one = header._replace(chunk=place, first=place * CHUNK)
            payload = chunk.numpy().data.cast("B")
            answers += [answer.header for answer in self.shard.handle(one, payload)]
        return answers

    @property
    def moved(self) -> float:
        assert self.state.values is not None
        return float(self.state.values.tensor(placements.PARAMETERS).norm())

    @property
    def shortened(self) -> int:
        return Reporter(self.shard, lambda: 0.0).report().shortened


def of_norm(norm: float) -> torch.Tensor:
    return torch.full((CHUNK,), norm / CHUNK**0.5)


def test_a_push_within_the_bound_is_applied() -> None:
    one = Pushing()
    answers = one.push(1, [of_norm(1.0)] * CHUNKS)
    assert answers[-1].reason == Reason.NONE
    assert one.moved == pytest.approx(3**0.5)
    assert one.state.samples == 8
    assert one.shortened == 0


def test_who_pushes_more_moves_no_more_and_its_samples_do_not_count() -> None:
    """However it divides what it pushes into chunks: two fit, and the third is one too many."""
    one = Pushing()
    answers = one.push(1, [of_norm(1.5)] * CHUNKS)

    assert answers[-1].reason == Reason.MALFORMED
    assert one.moved <= MOST * ALLOWANCE
    assert one.state.samples == 0
    assert one.state.count == 0


def test_a_push_that_is_too_long_from_its_first_chunk_on_moves_nothing() -> None:
    one = Pushing()
    (answer,) = one.push(1, [of_norm(1e6)])
    assert answer.reason == Reason.MALFORMED
    assert one.moved == 0.0


def test_each_push_has_the_whole_bound() -> None:
    one = Pushing()
    for number in (1, 2):
        assert one.push(number, [of_norm(1.2)] * CHUNKS)[-1].reason == Reason.NONE
    assert one.moved == pytest.approx(2 * 1.2 * 3**0.5)


def test_what_was_scaled_down_is_within_the_bound_and_counted() -> None:
    one = Pushing()
    answers = one.push(1, [of_norm(300.0)] * CHUNKS, scale=MOST / (300.0 * 3**0.5))
    assert answers[-1].reason == Reason.NONE
    assert one.moved == pytest.approx(MOST, rel=1e-5)
    assert one.shortened == 1


def test_without_a_bound_a_push_is_as_long_as_it_is() -> None:
    one = Pushing(most=None)
    assert one.push(1, [of_norm(1e6)] * CHUNKS)[-1].reason == Reason.NONE


def test_a_sender_that_is_dropped_leaves_nothing_behind() -> None:
    bound, sender = NormBound(1.0), SenderIncarnation(3, 1)
    assert bound.takes(sender, 1.0, is_first=True)
    assert not bound.takes(sender, 1.0, is_first=False)
    bound.drop(SenderIncarnation(3, 2))
    assert bound.takes(sender, 1.0, is_first=False)


def test_no_order_of_chunks_of_any_size_brings_a_push_beyond_the_bound() -> None:
    draw = random.Random(1)
    for _ in range(500):
        bound, taken, is_first = NormBound(1.0), 0.0, True
        for _ in range(20):
            norm = 10 ** draw.uniform(-4, 2)
            if bound.takes(SenderIncarnation(0, 1), norm, is_first=is_first):
                taken += norm**2
                is_first = False
        assert taken <= ALLOWANCE**2 * (1 + 1e-9)
