"""Update rules that go by the staleness of pushes, beside the same in double precision."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from builders.interleaved import CUTS, ELEMENTS, SENDERS, Expected, Interleaved, Sender, reach
from builders.placements import PARAMETERS
from builders.transports import a_chunk_header, a_header
from disttrain.job.schedule import Schedule
from disttrain.job.schedule_kinds import LinearWarmup
from disttrain.job.staleness import ScaleRate, Staleness
from disttrain.job.update_rule import UpdateRule
from disttrain.job.update_rules.compensated import Compensated
from disttrain.job.update_rules.predicted_momentum import PredictedMomentum
from disttrain.job.update_rules.sgd import Sgd
from disttrain.parameter_server.arithmetic import rule_for
from disttrain.parameter_server.deliveries import Delivered, SenderIncarnation
from disttrain.parameter_server.fetch_contexts import FetchContexts
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.restoring import merge
from disttrain.parameter_server.update_rule import Chunk, FetchContext, PushContext, Rule
from disttrain.transport.header import Verb

RATE, MOMENTUM, STRENGTH = 0.01, 0.8, 0.5


class StalenessAware(Expected):
    def push(self, cut: slice, gradient: Tensor, staleness: int, sender: Sender) -> None:
        known = sender.mean_staleness if staleness < 0 else staleness
        self.parameters[cut] -= RATE / max(1.0, known) * gradient


class Predicted(Expected):
    def __init__(self) -> None:
        super().__init__()
        self.velocity = torch.zeros(ELEMENTS, dtype=torch.float64)

    def push(self, cut: slice, gradient: Tensor, staleness: int, sender: Sender) -> None:
        del staleness, sender
        self.velocity[cut] = MOMENTUM * self.velocity[cut] - RATE * gradient
        self.parameters[cut] += self.velocity[cut]

    def fetch(self, cut: slice, sender: Sender, mean_staleness: float) -> Tensor:
        del sender
        return self.parameters[cut] + self.velocity[cut] * reach(MOMENTUM, mean_staleness)


class PredictedAndCompensated(Predicted):
    """Section 4 of Sato et al. 2017: what is corrected is the error of the prediction."""

    def push(self, cut: slice, gradient: Tensor, staleness: int, sender: Sender) -> None:
        error = self.parameters[cut] - sender.given[cut].double()
        corrected = gradient + STRENGTH * gradient * gradient * error
        super().push(cut, corrected, staleness, sender)


class Copying(UpdateRule):
    """SGD that compensates delays by copies on the shard: Zheng et al. 2017."""

    name = "copying"
    kept_of_sender = ("backup",)
    serves = "given"


class CopyingRule(Rule[Copying]):
    of = Copying

    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        if push.staleness < 0:
            chunk.parameters.add_(gradient, alpha=-push.rate)
            return
        moved = chunk.parameters - chunk.of_sender["backup"]
        compensated = gradient + STRENGTH * gradient * gradient * moved
        chunk.parameters.add_(compensated, alpha=-push.rate)

    def serve(self, chunk: Chunk, fetch: FetchContext, out: Tensor) -> None:
        del fetch
        chunk.of_sender["backup"].copy_(chunk.parameters)
        out.copy_(chunk.parameters)


class CopyingExpected(Expected):
    def __init__(self) -> None:
        super().__init__()
        self.backups = torch.zeros(SENDERS, ELEMENTS, dtype=torch.float64)

    def push(self, cut: slice, gradient: Tensor, staleness: int, sender: Sender) -> None:
        moved = self.parameters[cut] - self.backups[sender.index, cut]
        strength = 0.0 if staleness < 0 else STRENGTH
        self.parameters[cut] -= RATE * (gradient + strength * gradient * gradient * moved)

    def fetch(self, cut: slice, sender: Sender, mean_staleness: float) -> Tensor:
        del mean_staleness
        self.backups[sender.index, cut] = self.parameters[cut]
        return self.parameters[cut]

    def restart(self) -> None:
        self.backups.zero_()


def staleness_aware(seed: int) -> Interleaved:
    return Interleaved(
        rule_for(Sgd(learning_rate=RATE)),
        StalenessAware(),
        seed,
        staleness=Staleness(scale_rate=ScaleRate()),
    )


def predicted(seed: int) -> Interleaved:
    rule = rule_for(PredictedMomentum(learning_rate=RATE, momentum=MOMENTUM))
    return Interleaved(rule, Predicted(), seed)


def copying(seed: int) -> Interleaved:
    return Interleaved(CopyingRule(Copying(learning_rate=RATE)), CopyingExpected(), seed)


def predicted_and_compensated(seed: int) -> Interleaved:
    inner = PredictedMomentum(learning_rate=RATE, momentum=MOMENTUM)
    rule = rule_for(Compensated.of(inner, STRENGTH, None))
    return Interleaved(rule, PredictedAndCompensated(), seed)


RULES = pytest.mark.parametrize(
    "make", [staleness_aware, predicted, copying, predicted_and_compensated]
)


@RULES
@pytest.mark.parametrize("seed", range(5))
def test_a_rule_does_what_it_should_among_several_senders(
    make: Callable[[int], Interleaved], seed: int
) -> None:
    run = make(seed)
    for _ in range(20):
        run.run(50)
    means = [sender.mean_staleness for sender in run.senders]
    assert min(means) > 1.5
    assert len(set(means)) == SENDERS


@RULES
@pytest.mark.parametrize("seed", range(5))
def test_a_rule_goes_on_from_a_checkpoint(
    make: Callable[[int], Interleaved], seed: int, tmp_path: Path
) -> None:
    run = make(seed)
    run.run(503)
    before = run.shard.state.deliveries.copy()
    assert any(state.is_partial and state.first_staleness > 0 for state in before.values())

    run.restart(tmp_path)

    assert run.shard.state.deliveries.copy() == before
    run.run(500)
    assert any(-1 in sender.staleness for sender in run.senders)


class Seen(UpdateRule):
    """Changes nothing."""

    name = "seen"
    serves = "given"


class Seeing(Rule[Seen]):
    """Changes nothing."""

    of = Seen

    def __init__(self, config: Seen) -> None:
        super().__init__(config)
        self.pushes: dict[int, list[PushContext]] = defaultdict(list)
        self.fetches: dict[int, list[FetchContext]] = defaultdict(list)

    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        del chunk, gradient
        self.pushes[push.sender].append(push)

    def serve(self, chunk: Chunk, fetch: FetchContext, out: Tensor) -> None:
        self.fetches[fetch.sender].append(fetch)
        out.copy_(chunk.parameters)


class Unmoved(Expected):
    def push(self, cut: slice, gradient: Tensor, staleness: int, sender: Sender) -> None:
        """Nothing changes."""


def test_all_chunks_of_a_push_and_of_a_fetch_have_the_context_of_the_first() -> None:
    rule = Seeing(
        Seen(learning_rate=RATE, schedule=Schedule(linear_warmup=LinearWarmup(samples=99)))
    )
    Interleaved(rule, Unmoved(), seed=1).run(500)
    contexts: list[Sequence[FetchContext]] = [*rule.pushes.values(), *rule.fetches.values()]
    for seen in contexts:
        firsts = range(0, len(seen), len(CUTS))
        assert all(len(set(seen[first : first + len(CUTS)])) == 1 for first in firsts)
        assert len(set(seen)) > 10


def test_the_mean_over_several_shards_is_of_all_that_they_saw() -> None:
    incarnation = SenderIncarnation(0, 1)
    tables = [
        {incarnation: Delivered(staleness_sum=4, staleness_count=2)},
        {incarnation: Delivered(staleness_sum=3, staleness_count=1)},
        {},
    ]
    assert merge(tables)[incarnation].mean_staleness == 7 / 3


def test_vectors_of_a_sender_last_as_long_as_its_incarnation_may_push() -> None:
    run = copying(0)
    run.run(200)
    values = run.shard.state.values
    assert values is not None
    assert len(values._of_senders) == SENDERS

    run.shard.fence(SenderIncarnation(0, 1))

    assert set(values._of_senders) == {SenderIncarnation(index, 1) for index in range(1, SENDERS)}

    run.shard.admit(SenderIncarnation(1, 2))

    assert set(values._of_senders) == {SenderIncarnation(index, 1) for index in range(2, SENDERS)}


def test_a_late_copy_of_a_fetch_changes_nothing_for_the_one_under_way() -> None:
    state = ShardState(index=0, incarnation=1, is_initialised=True)
    contexts = FetchContexts(state, lambda _: RATE)
    under_way = a_chunk_header(Verb.FETCH, 0, incarnation=1, sequence=2)
    context = contexts.of(under_way)

    state.count += 1
    late = contexts.of(under_way._replace(sequence=1))

    assert late.steps == 1
    assert contexts.of(under_way) is context


def test_the_parameters_are_served_from_their_memory_whatever_a_rule_predicts() -> None:
    run = predicted(0)
    run.run(200)
    values = run.shard.state.values
    assert values is not None

    def fetched(number: int) -> Iterator[Tensor]:
        asked = a_header(
            Verb.FETCH, sender=1, incarnation=1, receiver_incarnation=1, vector=number, count=2
        )
        for answer in run.shard.handle(asked, memoryview(b"")):
            yield torch.frombuffer(answer.payload, dtype=torch.float32)

    held = values.tensor(PARAMETERS)
    assert [one.data_ptr() for one in fetched(1)] == [held[cut].data_ptr() for cut in CUTS[:2]]
    # The memory of what is made is used again for the next chunk.
    parameters, velocity, prediction = ([one.clone() for one in fetched(n)] for n in (1, 2, 3))
    reached = reach(MOMENTUM, run.senders[1].mean_staleness)
    for now, speed, then in zip(parameters, velocity, prediction, strict=True):
        assert not torch.equal(now, then)
        assert torch.allclose(now + speed * reached, then, atol=1e-6)
