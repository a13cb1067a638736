"""What must hold of every run, counted from what the shards really applied."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from builders.sampled_jobs import BatchJob
from disttrain.coordinator.decisions.stop_rules import is_target_met
from disttrain.coordinator.journal.batch_entries import RunBegun
from disttrain.coordinator.journal.batch_state import Batch
from disttrain.coordinator.journal.member_entries import LeaseGranted
from disttrain.coordinator.phases import FailureReason, Phase, StopReason
from disttrain.coordinator.protocol.fields import Lease
from disttrain.state.share import Share
from simulation import batch, differences, groups
from simulation import chaos as runs
from simulation.batch import Point
from simulation.chaos import CHUNK_BYTES, Chaos
from simulation.jobs import WARM_SAMPLES, Kind
from simulation.world import accuracy

Sample = tuple[int, int, int]
"""Epoch, portion, place in the portion."""


def violations(chaos: Chaos) -> list[str]:
    """Everything that is wrong; empty when all is well."""
    found = list(chaos.world.violations)
    for shard, said in enumerate(chaos.told):
        twice = [chunk for chunk, times in Counter(said.chunks).items() if times > 1]
        found += [f"shard {shard} applied {chunk} twice" for chunk in twice]
        found += [f"shard {shard} applied {push} after the fence" for push in said.after_fence]
    found += groups.violations(chaos.coordinator.entries(), chaos.partitions)
    begun = [one for one in chaos.coordinator.entries() if isinstance(one, RunBegun)]
    if len(begun) > 1:
        found.append(f"the method began {len(begun)} times")
    state = chaos.coordinator.state
    if state.reason == FailureReason.CHECKPOINT_FAILED and chaos.world.checkpoint_failure:
        return found
    if state.phase is not Phase.COMPLETE:
        return [*found, f"the job did not complete: {state.phase} {state.reason} {state.message}"]
    found += _updates_lost(chaos)
    found += _measures(chaos)
    found += _of_a_method(chaos) if chaos.is_a_batch else _of_pushes(chaos)
    if any(state.data.leases.values()):
        found.append("leases are open at the end")
    return found


def is_found(word: str, seeds: Iterable[int], **plan: Any) -> bool:
    """Whether a seed fails with this word in what it says."""
    for seed in seeds:
        try:
            run = runs.run(seed, **plan)
        except (AssertionError, KeyError):
            continue
        if any(word in violation for violation in violations(run)):
            return True
    return False


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
    expected = chaos.world.samples * (chaos.world.job.spec.stop.epochs or 0)
    if chaos.coordinator.state.reason == StopReason.TARGET_METRIC:
        # What a rollback took of the dead is still to be done again when the job ends early.
        expected = data.samples_done
        processed = min(processed, expected) if chaos.rolled_back else processed
    found = []
    if processed != expected or data.samples_done != expected:
        found.append(f"{processed} processed, {data.samples_done} counted, not {expected}")
    if chaos.rolled_back:
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


def _measures(chaos: Chaos) -> list[str]:
    """The exported model is the one measured."""
    measures = chaos.coordinator.state.evaluations[-1].measures
    if measures["accuracy"] != pytest.approx(accuracy(chaos.exported)):
        return [f"the final measures are {measures}, not those of the exported model"]
    return []


def _of_pushes(chaos: Chaos) -> list[str]:
    """Everything was done; the model holds every update, and reaches the target."""
    found = _samples(chaos)
    is_of_differences = chaos.plan.kind is not Kind.DOWNPOUR
    wanted = differences.applied(chaos) if is_of_differences else _applied(chaos)
    # Parts of ones are no exact numbers.
    if not np.allclose(chaos.exported, wanted, rtol=1e-5 * is_of_differences, atol=0):
        found.append(f"the model is {chaos.exported}, and its updates make {wanted}")
    found += differences.missing(chaos) if is_of_differences else []
    state, target = chaos.coordinator.state, chaos.world.job.spec.stop.target_metric
    measures = state.evaluations[-1].measures
    at_target = state.reason == StopReason.TARGET_METRIC
    if target is not None and at_target and not is_target_met(target, measures):
        found.append(f"the job ended at its target, which its model misses: {measures}")
    return found


def _applied(chaos: Chaos) -> Point:
    """What the updates in the shards' values make of the first ones."""
    world, placement = chaos.world, chaos.coordinator.state.placement
    assert placement is not None
    made = np.full(world.parameters, world.start)
    for shard, said in enumerate(chaos.told):
        applied = Counter(chunk for _, chunk in said.chunks)
        share = Share(placement, shard, CHUNK_BYTES)
        for part in share.all_chunks([share.trained]):
            made[part.first : part.first + part.count] -= world.rate * applied[part.chunk]
    return made


def undisturbed(chaos: Chaos) -> BatchJob:
    """How a job's batch method goes from where it began, if nothing happens meanwhile."""
    spec = chaos.world.job.spec
    rules = spec.strategy.sandblaster
    assert rules is not None
    return batch.of_job(rules, spec.seed, chaos.shards, _applied(chaos).tobytes())


def _of_a_method(chaos: Chaos) -> list[str]:
    """The method began once, where its warm start had ended, and went as it goes undisturbed."""
    state, serial = chaos.coordinator.state, undisturbed(chaos)
    if state.batch is None or state.reason != StopReason.CONVERGED:
        return [f"the method did not go on to its end: {state.reason}"]
    found = []
    if chaos.plan.kind.has_warm_start:
        found += _warm_start(chaos, state.batch)
    else:
        points = {accuracy(point) for point in serial.points}
        measured = {one.measures["accuracy"] for one in state.evaluations}
        if any(one != pytest.approx(min(points, key=lambda p: abs(p - one))) for one in measured):
            found.append("a point was measured that an undisturbed run does not come to")
    if chaos.exported.tobytes() != serial.points[-1].tobytes():
        found.append("the parameters are not those of an undisturbed run")
    return found


def _warm_start(chaos: Chaos, method: Batch) -> list[str]:
    """Each sample of the warm start was in the updates, and as often as is said."""
    any_shard, all_shards = processings(chaos)
    data, processed = chaos.coordinator.state.data, len(all_shards)
    # What a rollback took of a dead replica is done again, and not always the very same samples.
    processed = min(processed, WARM_SAMPLES) if chaos.rolled_back else processed
    found = []
    if (processed, method.before.samples) != (WARM_SAMPLES, WARM_SAMPLES):
        counted = method.before.samples
        found.append(f"{processed} processed, {counted} counted, not {WARM_SAMPLES}")
    if len([sample for sample in all_shards if sample[0] == 0]) != chaos.world.samples:
        found.append("the first epoch of the warm start is not whole")
    repeated = sum(any_shard.values()) - len(any_shard)
    if not chaos.rolled_back and repeated != data.samples_repeated:
        found.append(f"{repeated} samples repeated, {data.samples_repeated} counted")
    return found
