"""What must hold of every run, counted from what the shards really applied."""

from collections import Counter

import numpy as np
import pytest

from disttrain.coordinator.decisions.stop_rules import is_target_met
from disttrain.coordinator.journal.state import Phase, StopReason
from disttrain.coordinator.journal.work_entries import LeaseGranted
from disttrain.coordinator.protocol.fields import Lease
from disttrain.coordinator.protocol.messages import FailureReason
from disttrain.state.share import Share
from simulation.chaos import CHUNK_BYTES, Chaos
from simulation.world import accuracy, updates_in

Sample = tuple[int, int, int]
"""Epoch, portion, place in the portion."""


def violations(chaos: Chaos) -> list[str]:
    """Everything that is wrong; empty when all is well."""
    found = list(chaos.world.violations)
    for shard, said in enumerate(chaos.told):
        twice = [chunk for chunk, times in Counter(said.chunks).items() if times > 1]
        found += [f"shard {shard} applied {chunk} twice" for chunk in twice]
        found += [f"shard {shard} applied {push} after the fence" for push in said.after_fence]
    state = chaos.coordinator.state
    if state.reason == FailureReason.CHECKPOINT_FAILED and chaos.world.checkpoint_failure:
        return found
    if state.phase is not Phase.COMPLETE:
        return [*found, f"the job did not complete: {state.phase} {state.reason} {state.message}"]
    found += _samples(chaos)
    found += _updates_lost(chaos)
    found += _model(chaos)
    if any(state.data.leases.values()):
        found.append("leases are open at the end")
    return found


def leases(chaos: Chaos) -> dict[int, Lease]:
    """Every lease of the run; an id is given once."""
    granted = [entry for entry in chaos.coordinator.entries() if isinstance(entry, LeaseGranted)]
    assert len({entry.lease.id for entry in granted}) == len(granted)
    return {entry.lease.id: entry.lease for entry in granted}


def processings(chaos: Chaos) -> tuple[Counter[Sample], Counter[Sample]]:
    """How often each sample was applied on any shard, and on all."""
    known = leases(chaos)
    on_shards: dict[tuple[Sample, int], set[int]] = {}
    for shard, said in enumerate(chaos.told):
        for push in said.ever:
            for lease_id, first, end in chaos.world.pushed[push]:
                lease = known[lease_id]
                for place in range(lease.first + first, lease.first + end):
                    key = ((lease.epoch, lease.portion, place), lease_id)
                    on_shards.setdefault(key, set()).add(shard)
    any_shard = Counter(sample for sample, _ in on_shards)
    all_shards = Counter(
        sample for (sample, _), shards in on_shards.items() if len(shards) == chaos.shards
    )
    return any_shard, all_shards


def _samples(chaos: Chaos) -> list[str]:
    any_shard, all_shards = processings(chaos)
    data, processed = chaos.coordinator.state.data, len(all_shards)
    rolled_back = any(lives > 1 for lives in chaos.shard_lives)
    expected = chaos.world.samples * (chaos.world.job.spec.stop.epochs or 0)
    if chaos.coordinator.state.reason == StopReason.TARGET_METRIC:
        # What a rollback took of the dead is still to be done again when the job ends early.
        expected = data.samples_done
        processed = min(processed, expected) if rolled_back else processed
    found = []
    if processed != expected or data.samples_done != expected:
        found.append(f"{processed} processed, {data.samples_done} counted, not {expected}")
    if rolled_back:
        return found
    repeated = sum(any_shard.values()) - len(any_shard)
    if repeated != data.samples_repeated:
        found.append(f"{repeated} samples repeated, {data.samples_repeated} counted")
    if repeated and not data.portions_requeued:
        found.append(f"{repeated} samples repeated and no lease was lost")
    return found


def _updates_lost(chaos: Chaos) -> list[str]:
    """Whatever was applied completely on a shard, and is in its values no more."""
    lost = sum(len(set(said.ever) - set(said.held)) for said in chaos.told)
    counted = sum(chaos.coordinator.state.totals.updates_lost.values())
    return [f"{lost} updates lost, {counted} counted"] if counted != lost else []


def _model(chaos: Chaos) -> list[str]:
    """The exported model holds every update, is the one measured, and reaches the target."""
    found = []
    state = chaos.coordinator.state
    assert state.placement is not None
    for shard, said in enumerate(chaos.told):
        applied = Counter(chunk for _, chunk in said.chunks)
        share = Share(state.placement, shard, CHUNK_BYTES)
        for part in share.all_chunks([share.trained]):
            values = chaos.exported[part.first : part.first + part.count]
            if not np.array_equal(values, np.full(part.count, -applied[part.chunk])):
                words = f"{applied[part.chunk]} updates, the model {values}"
                found.append(f"chunk {part.chunk} of shard {shard} has {words}")
    target = chaos.world.job.spec.stop.target_metric
    measures = state.evaluations[-1].measures
    if measures["accuracy"] != pytest.approx(accuracy(updates_in(chaos.exported))):
        found.append(f"the final measures are {measures}, not those of the exported model")
    at_target = state.reason == StopReason.TARGET_METRIC
    if target is not None and at_target and not is_target_met(target, measures):
        found.append(f"the job ended at its target, which its model misses: {measures}")
    return found
