"""What a push may say of itself: a liar would end the schedule of all replicas."""

import pytest
import torch

from builders import placements
from builders.jobs import a_job
from builders.transports import a_chunk_header
from disttrain.parameter_server import strategies
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.shard import Shard
from disttrain.transport.header import Header, Reason, Verb

ELEMENTS, BATCH = 4, 8


class Pushing:
    """A shard of a job, to which one replica pushes."""

    def __init__(self, *changes: str) -> None:
        job = a_job(f"spec.batchSize={BATCH}", *changes)
        self.state = ShardState(index=0, incarnation=1, is_initialised=True)
        self.shard = Shard(strategies.stages(job.spec, self.state, Records(incarnation=1)))
        layout = placements.a_placement({placements.PARAMETERS: ELEMENTS}, 1)
        self.shard.configure(layout, 4 * ELEMENTS)
        self.shard.admit(SenderIncarnation(0, 1))

    def push(self, samples: int) -> tuple[Header, str]:
        header = a_chunk_header(Verb.PUSH, ELEMENTS, incarnation=1, receiver_incarnation=1)
        header = header._replace(sequence=1, chunks=1, samples=samples)
        (answer,) = self.shard.handle(header, torch.ones(ELEMENTS).numpy().data.cast("B"))
        return answer.header, bytes(answer.payload).decode()


MOST = 8 * 3 * BATCH
"""A push tells the samples of up to eight, since some before it may have held nothing."""
DOWNPOUR = ("spec.strategy.downpour.pushEvery=3",)
LOCAL_STEPS = ("spec.strategy.downpour=null", "spec.strategy.localSteps={steps: 3}")


@pytest.mark.parametrize("changes", [DOWNPOUR, LOCAL_STEPS])
def test_a_push_counts_the_samples_that_its_steps_can_have(changes: tuple[str, ...]) -> None:
    pushing = Pushing(*changes)
    header, _ = pushing.push(MOST)
    assert header.verb == Verb.PUSHED
    assert pushing.state.samples == MOST


@pytest.mark.parametrize("samples", [MOST + 1, 1 << 40])
@pytest.mark.parametrize("changes", [DOWNPOUR, LOCAL_STEPS])
def test_a_push_of_more_samples_is_refused_and_changes_nothing(
    changes: tuple[str, ...], samples: int
) -> None:
    pushing = Pushing(*changes)
    header, sentence = pushing.push(samples)
    assert (header.verb, header.reason) == (Verb.REFUSED, Reason.MALFORMED)
    assert f"counts {samples} samples" in sentence
    assert f"1 to 3 steps of up to {BATCH} samples" in sentence
    assert pushing.state.samples == 0
    assert pushing.state.values is not None
    assert not pushing.state.values.tensor(placements.PARAMETERS).any()
