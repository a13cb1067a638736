"""A replayed shard gives out what the run's shard gave, by the update rule's own way."""

from typing import cast

import numpy as np
import pytest
import torch

from builders import placements
from builders.jobs import a_job
from builders.transports import a_chunk_header
from disttrain.parameter_server.deliveries import SenderLife
from disttrain.parameter_server.ledger import RECORD, Kind
from disttrain.replay.errors import RecordContradicted
from disttrain.replay.recording import Recording, ShardLog
from disttrain.replay.shard import ReplayedShard
from disttrain.state.placement import TRAINED
from disttrain.transport.header import Verb

ELEMENTS = 4
RULE = "{predictedMomentum: {learningRate: 1.0, momentum: 0.5}}"


class Recorded:
    """As much of a recording as a shard asks for."""

    spec = a_job(f"spec.strategy.downpour.optimizer={RULE}").spec
    shard_threads = 1
    chunk_bytes = 4 * ELEMENTS


def a_shard() -> ReplayedShard:
    log = ShardLog(index=0, incarnation=1, records=np.zeros(0, RECORD))
    placement = placements.a_placement({placements.PARAMETERS: ELEMENTS}, 1, ("velocity",))
    shard = ReplayedShard(cast("Recording", Recorded()), log, placement)
    shard.state.is_initialised = True
    shard.shard.admit(SenderLife(0, 1))
    return shard


def a_fetched_chunk(vector: int) -> np.void:
    record = np.zeros(1, RECORD)
    record["kind"], record["vector"], record["incarnation"] = Kind.CHUNK_FETCHED, vector, 1
    record["live_replicas"] = 3
    chunk: np.void = record[0]
    return chunk


def test_a_chunk_is_given_as_the_update_rule_serves_it() -> None:
    shard = a_shard()
    push = a_chunk_header(
        Verb.PUSH,
        ELEMENTS,
        incarnation=1,
        receiver_incarnation=1,
        version_incarnation=1,
        sequence=1,
    )
    list(shard.shard.handle(push, torch.ones(ELEMENTS).numpy().data.cast("B")))

    given = shard.chunk(a_fetched_chunk(TRAINED))

    # The velocity is -1, and the sender's mean staleness 0.
    assert np.frombuffer(given.content, np.float32).tolist() == [-1.5] * ELEMENTS
    assert shard.values.tensor(placements.PARAMETERS).tolist() == [-1.0] * ELEMENTS
    assert shard.state.live_replicas == 3


def test_a_vector_that_the_run_did_not_have_contradicts_the_record() -> None:
    with pytest.raises(RecordContradicted, match="gave out vector 9"):
        a_shard().chunk(a_fetched_chunk(9))
