"""Who holds a job's state is asked of its settings: shards, or the first replicas."""

import random
from typing import Any

import pytest

from builders.jobs import a_job
from builders.machines import Machine
from disttrain.coordinator.phases import Phase
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.commands import Checkpoint
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.messages import MemberDied, RefusalReason
from disttrain.coordinator.status import sections
from disttrain.coordinator.status.cluster_status import JobObject, Patches
from disttrain.job.roles import Durability
from disttrain.job.strategies.downpour import Downpour
from disttrain.launcher.plan import process_names
from disttrain.transport.header import Role


def without_shards(**changes: Any) -> Machine:
    """Replica 0 holds the state."""
    return Machine(shards=0, holding_replicas=1, **changes)


def writers(machine: Machine) -> list[MemberId]:
    """Who is to write a part of a checkpoint."""
    issued = machine.state.orders.values()
    return [one.member for one in issued if isinstance(one.order, Checkpoint)]


def died(machine: Machine, index: int) -> None:
    pid = machine.state.replicas[index].pid
    machine.request(MemberDied(role=Role.REPLICA, index=index, pid=pid, exit_code=-9))


def test_a_job_without_shards_begins_with_its_holder() -> None:
    machine = without_shards()
    machine.member(Role.REPLICA, 1, "r1")
    machine.tick()
    assert machine.phase() is Phase.WAITING

    machine.member(Role.REPLICA, 0, "r0")

    assert machine.phase() is Phase.RUNNING
    assert machine.state.placement is not None
    assert len(machine.state.placement.holders) == 1
    refused = machine.join(Role.SHARD, 0, "s0")
    assert isinstance(refused, messages.Refused)
    assert refused.reason is RefusalReason.NO_SUCH_INDEX


def test_its_holder_alone_writes_checkpoints() -> None:
    machine = without_shards()
    holder = machine.member(Role.REPLICA, 0, "r0")
    machine.member(Role.REPLICA, 1, "r1")

    assert writers(machine) == [holder]
    machine.obey()

    assert machine.state.last_checkpoint == 1
    assert machine.state.checkpoint is None


@pytest.mark.parametrize(("index", "is_given_up"), [(0, True), (1, False)])
def test_a_checkpoint_ends_with_who_writes_it(index: int, *, is_given_up: bool) -> None:
    machine = without_shards()
    for number in range(2):
        machine.member(Role.REPLICA, number, f"replica {number}")
    assert machine.state.checkpoint is not None

    died(machine, index)

    assert (machine.state.checkpoint is None) == is_given_up
    assert machine.state.totals.checkpoint_failures == is_given_up
    if is_given_up:
        assert "replica-0 died" in machine.state.checkpoint_failure


def test_what_a_replica_has_reported_is_done_where_no_shard_could_say_more() -> None:
    machine = without_shards()
    machine.member(Role.REPLICA, 0, "r0")
    member = machine.member(Role.REPLICA, 1, "other")
    leases = machine.work(member).leases
    machine.reach(member, leases[0].id, 3)

    died(machine, 1)

    assert machine.state.fencings == []
    assert machine.state.samples == 3
    assert machine.state.data.samples_requeued == sum(one.samples for one in leases) - 3


def test_without_durability_the_job_fails_with_its_holder() -> None:
    machine = without_shards(durability=Durability.NONE)
    machine.member(Role.REPLICA, 0, "r0")
    machine.member(Role.REPLICA, 1, "other")
    died(machine, 1)
    assert machine.phase() is Phase.RUNNING
    died(machine, 0)
    assert machine.phase() is Phase.FAILED
    assert "replica-0 died and durability is none" in machine.state.message


def test_a_jobs_status_says_nothing_of_shards_that_it_has_not() -> None:
    machine = without_shards()
    machine.member(Role.REPLICA, 0, "r0")
    coordinator = machine.coordinator

    found = sections.of_object(coordinator.state, coordinator.stages, coordinator.watch, 0.0)

    assert "parameterServer" not in found
    large = found | {"training": {"metrics": {f"m{n}": "x" * 90 for n in range(300)}}}
    job = JobObject(name="digits", namespace="default", uid="u")
    sent = Patches(job, random.Random(1)).take(large, 0.0)
    assert sent is not None
    assert b"parameterServer" not in sent


def test_a_manifest_has_shards_where_its_strategy_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = a_job("spec.parameterServer.shards=2")
    assert job.spec.shards == 2
    assert "shard-1" in process_names(job)

    monkeypatch.setattr(Downpour, "holding_replicas", lambda _, replicas: min(replicas, 1))

    assert job.spec.shards == 0
    assert process_names(job) == ["coordinator", "replica-0"]
