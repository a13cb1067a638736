"""What must hold of every run, counted from what the shards really applied."""

from collections import Counter

import pytest

from disttrain.coordinator.journal.work_entries import LeaseGranted
from disttrain.coordinator.protocol.fields import Lease
from simulation.warm_start.modelled.chaos import Chaos
from simulation.warm_start.modelled.sim_shard import SimShard
from simulation.warm_start.modelled.world import accuracy

Sample = tuple[int, int, int]
"""Epoch, portion, place in the portion."""


def leases(chaos: Chaos) -> dict[int, Lease]:
    """Every lease of the run; an id is given once."""
    granted = [entry for entry in chaos.coordinator.entries() if isinstance(entry, LeaseGranted)]
    assert len({entry.lease.id for entry in granted}) == len(granted)
    return {entry.lease.id: entry.lease for entry in granted}


def applied_twice(chaos: Chaos) -> list[str]:
    """Chunks that are in the values of a shard twice."""
    found = []
    for process in chaos.world.processes.values():
        if isinstance(process, SimShard):
            twice = [chunk for chunk, n in Counter(process.chunks).items() if n > 1]
            found += [f"shard {process.index} applied chunk {chunk} twice" for chunk in twice]
    return found


def processings(chaos: Chaos) -> tuple[Counter[Sample], Counter[Sample]]:
    """How often each sample was applied on any shard, and on all."""
    known = leases(chaos)
    on_shards: dict[tuple[Sample, int], set[int]] = {}
    for applied in chaos.world.history:
        for lease_id, first, end in applied.push.ranges:
            lease = known[lease_id]
            for place in range(lease.first + first, lease.first + end):
                key = ((lease.epoch, lease.portion, place), lease_id)
                on_shards.setdefault(key, set()).add(applied.shard)
    any_shard = Counter(sample for sample, _ in on_shards)
    complete = chaos.settings.shards
    all_shards = Counter(
        sample for (sample, _), shards in on_shards.items() if len(shards) == complete
    )
    return any_shard, all_shards


def model(chaos: Chaos) -> list[str]:
    """The exported model holds every update, and is the one measured."""
    found = []
    parts = chaos.world.checkpoints[chaos.world.exported]
    for shard in chaos.world.processes.values():
        if isinstance(shard, SimShard) and shard.alive:
            pushed, exported = len(shard.applied), len(parts[shard.index].applied)
            if pushed != exported:
                found.append(f"shard {shard.index} has {pushed} updates, the model {exported}")
    measures = chaos.coordinator.state.evaluations[-1].measures
    if measures["accuracy"] != pytest.approx(accuracy(chaos.world.exported_updates())):
        found.append(f"the final measures are {measures}, not those of the exported model")
    return found


def updates_lost(chaos: Chaos) -> list[str]:
    """Whatever was applied completely on a shard, and is in its values no more."""
    ever = {(applied.shard, applied.push) for applied in chaos.world.history}
    processes = chaos.world.processes.values()
    shards = [process for process in processes if isinstance(process, SimShard)]
    held = {(shard.index, push) for shard in shards for push in shard.applied}
    counted = sum(chaos.coordinator.state.totals.updates_lost.values())
    if counted != len(ever - held):
        return [f"{len(ever - held)} updates lost, {counted} counted"]
    return []
