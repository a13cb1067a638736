"""Replicas of several processes: joined as one, lost as one, given work as one."""

from collections.abc import Iterable
from itertools import permutations
from typing import Any

import pytest

from builders import placements
from builders.control_members import LAYOUT
from builders.grouped_members import a_member
from builders.machines import Machine
from disttrain.coordinator.decisions.joining import MOST_REPLICAS
from disttrain.coordinator.journal import state as states
from disttrain.coordinator.journal.group import Group
from disttrain.coordinator.phases import IncarnationState, Phase
from disttrain.coordinator.protocol import commands, messages
from disttrain.coordinator.protocol.fields import MemberId, Position, Progress
from disttrain.coordinator.protocol.messages import RefusalReason
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.coordinator.status import status
from disttrain.transport.header import Role


def joined(machine: Machine, partition: int, instance: str, **more: Any) -> MemberId:
    reply = machine.request(a_member(partition, instance, **more))
    assert isinstance(reply, messages.Joined), reply
    return reply.member


def pair(machine: Machine, names: str = "ab", index: int = 0) -> tuple[MemberId, MemberId]:
    first, second = (joined(machine, p, names[p], index=index) for p in (0, 1))
    return first, second


def refusal(machine: Machine, member: MemberId) -> RefusalReason | None:
    reply = machine.heartbeat(member)
    return reply.reason if isinstance(reply, messages.Refused) else None


def group(machine: Machine, index: int = 0) -> Group:
    return machine.state.replicas[index]


def fences(machine: Machine) -> list[commands.Fence]:
    issued = machine.state.orders.values()
    return [one.order for one in issued if isinstance(one.order, commands.Fence)]


def of_two(**settings: Any) -> Machine:
    """A job that trains with two replicas of two processes each."""
    machine = Machine(partitions=2, **settings)
    machine.member(Role.SHARD, 0, "s0")
    pair(machine, "ab", 0)
    pair(machine, "cd", 1)
    machine.obey()
    assert machine.phase() is Phase.RUNNING
    return machine


def died(machine: Machine, member: MemberId) -> None:
    pid = group(machine, member.index).processes[member.partition].pid
    machine.request(
        messages.MemberDied(
            role=Role.REPLICA, index=member.index, partition=member.partition, pid=pid, exit_code=-9
        )
    )


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_members_form_one_incarnation_in_whatever_order_they_join(order: Iterable[int]) -> None:
    machine = Machine(partitions=3)
    seen = []
    for partition in order:
        member = joined(machine, partition, f"instance-{partition}", partitions=3)
        assert (member.index, member.partition, member.incarnation) == (0, partition, 1)
        seen.append((group(machine).is_whole, machine.state.num_live_replicas))
    assert seen == [(False, 0), (False, 0), (True, 1)]


def test_a_member_that_asks_to_join_again_is_the_same_one() -> None:
    machine = Machine(partitions=2)
    first = joined(machine, 1, "b")
    assert joined(machine, 1, "b") == first
    pair(machine)
    assert joined(machine, 1, "b") == first
    assert group(machine).incarnation == 1


def test_a_member_that_asks_again_hears_of_the_model_and_the_data_that_the_first_one_has() -> None:
    machine = Machine(partitions=2)
    early = machine.request(a_member(1, "b"))
    joined(machine, 0, "a")

    late = machine.request(a_member(1, "b", layout=LAYOUT))

    assert isinstance(early, messages.Joined)
    assert (early.placement, early.train_samples) == (None, 0)
    assert isinstance(late, messages.Joined)
    assert late.member == early.member
    assert late.placement == machine.state.placement is not None
    assert late.train_samples == machine.state.data.samples > 0


def test_a_member_that_turns_out_to_have_another_model_fails_the_job() -> None:
    machine = Machine(partitions=2)
    pair(machine)
    other = placements.of_lengths({placements.PARAMETERS: 63})

    refused = machine.request(a_member(1, "b", layout=other))

    assert isinstance(refused, messages.Refused)
    assert refused.reason is RefusalReason.WRONG_MODEL
    assert machine.phase() is Phase.FAILED


def test_another_process_in_a_members_place_begins_the_next_incarnation() -> None:
    machine = of_two()
    old = list(group(machine).members)
    newer = joined(machine, 1, "b2")

    assert (newer.partition, newer.incarnation) == (1, 2)
    assert not group(machine).is_whole
    assert [refusal(machine, member) for member in old] == 2 * [RefusalReason.OLD_INCARNATION]
    for partition, instance in enumerate("ab"):
        late = machine.request(a_member(partition, instance))
        assert isinstance(late, messages.Refused)
        assert late.reason is RefusalReason.OLD_INCARNATION
    assert joined(machine, 0, "a2").incarnation == 2
    assert group(machine).is_whole
    assert machine.state.totals.restarts == {"replica": 1}


@pytest.mark.parametrize("partition", [0, 1])
def test_the_death_of_a_member_ends_all_of_them_and_is_fenced_once(partition: int) -> None:
    machine = of_two()
    first, second = group(machine).members
    leases = machine.work(first).leases
    machine.muted.add(MemberId(role=Role.SHARD, index=0, incarnation=1))

    died(machine, (first, second)[partition])

    assert fences(machine) == [commands.Fence(index=0, incarnation=1, live_replicas=1)]
    died(machine, (first, second)[1 - partition])
    assert refusal(machine, first) is RefusalReason.OLD_INCARNATION
    assert refusal(machine, second) is RefusalReason.OLD_INCARNATION
    assert len(fences(machine)) == 1
    assert len(machine.state.fencings) == 1
    assert group(machine, 1).live, "nobody else is touched"

    machine.muted.clear()
    machine.obey()
    assert machine.state.data.portions_requeued == len(leases)
    again = machine.work(next(group(machine, 1).members)).leases
    assert {lease.portion for lease in again} == {lease.portion for lease in leases}


def test_a_member_that_ends_while_its_group_forms_ends_the_others() -> None:
    machine = Machine(partitions=2)
    machine.member(Role.SHARD, 0, "s0")
    waiting = joined(machine, 0, "a")

    died(machine, waiting)

    assert joined(machine, 1, "b").incarnation == 2
    assert refusal(machine, waiting) is RefusalReason.OLD_INCARNATION
    assert joined(machine, 0, "a2").incarnation == 2


@pytest.mark.parametrize("silent", [0, 1])
def test_the_silence_of_one_member_ends_its_group(silent: int) -> None:
    machine = of_two(lease_seconds=3.0, member_timeout_seconds=6.0)
    others = [member for index in (0, 1) for member in group(machine, index).members]
    quiet = others.pop(silent)
    shard = machine.state.shards[0].member
    for _ in range(7):
        for member in [*others, shard]:
            machine.heartbeat(member)
        machine.tick(1.0)

    assert not group(machine, 0).live
    assert group(machine, 0).reason == f"replica-0-{quiet.partition} was silent for 6.0 s"
    assert group(machine, 1).live


def test_work_of_a_group_whose_follower_is_silent_goes_to_others() -> None:
    machine = of_two(lease_seconds=3.0, member_timeout_seconds=60.0)
    first, _ = group(machine).members
    machine.work(first)
    for _ in range(4):
        machine.heartbeat(first)
        machine.tick(1.0)
    assert all(held.lost for held in machine.state.data.held(first))


def test_the_more_processes_the_groups_have_the_less_often_each_is_heard() -> None:
    machine = Machine(partitions=500, replicas=1)
    machine.member(Role.SHARD, 0, "s0")
    for partition in range(499):
        member = joined(machine, partition, f"instance-{partition}", partitions=500)
    reply = machine.heartbeat(member)
    assert isinstance(reply, messages.HeartbeatReply)
    assert reply.intervals is not None
    assert reply.intervals.heartbeat_seconds == 5.01


def test_a_group_that_is_not_whole_gets_no_work_and_no_commands() -> None:
    machine = Machine(partitions=2)
    machine.member(Role.SHARD, 0, "s0")
    first = joined(machine, 0, "a")
    machine.obey()
    machine.tick()

    assert machine.phase() is Phase.WAITING
    assert machine.work(first) == messages.Work(wait=True)
    assert not [one for one in machine.state.orders.values() if one.member.role is Role.REPLICA]


def test_the_first_process_alone_has_work_and_progress() -> None:
    machine = of_two()
    _, second = group(machine).members
    report = ReplicaReport(progress=Progress(position=Position(lease=1, offset=4), samples=4))
    machine.heartbeat(second, report)
    assert group(machine).progress == Progress()
    assert second not in machine.coordinator.watch.replicas
    refused = machine.request(
        messages.RequestWork(member=second, held=0, last_lease=0, progress=report.progress)
    )
    assert isinstance(refused, messages.Refused)
    assert refused.reason is RefusalReason.NOT_ALLOWED


def test_a_follower_that_leaves_takes_its_group_with_it() -> None:
    machine = of_two()
    first, second = group(machine).members
    everything = Progress(position=Position(lease=99), samples=8)
    machine.request(messages.Leave(member=second, reason="SIGTERM", progress=everything))
    assert group(machine).state is IncarnationState.DEAD, "what it says of progress counts nothing"
    assert refusal(machine, first) is RefusalReason.OLD_INCARNATION


def test_all_members_hear_of_the_end_also_those_whose_group_is_not_whole() -> None:
    machine = of_two()
    died(machine, next(group(machine).members))
    lone = joined(machine, 1, "b2")
    everybody = {*group(machine, 1).members, lone, machine.state.shards[0].member}
    machine.muted |= everybody
    machine.request(messages.Stop(reason="Ctrl-C", at_once=True))
    told = {
        one.member for one in machine.state.orders.values() if isinstance(one.order, commands.End)
    }
    assert told == everybody


@pytest.mark.parametrize(
    ("join", "said"),
    [
        (a_member(0, "x", partitions=1), "process 0 of 1: a replica has 2"),
        (a_member(2, "x", partitions=3), "process 2 of 3: a replica has 2"),
        (a_member(2, "x"), "process 2 of 2: a replica has 2"),
    ],
)
def test_a_member_of_a_group_of_another_size_is_refused(join: messages.Join, said: str) -> None:
    refused = Machine(partitions=2).request(join)
    assert isinstance(refused, messages.Refused)
    assert (refused.reason, refused.message) == (RefusalReason.NO_SUCH_INDEX, said)


def test_a_pod_may_have_any_index_since_somebody_scales_them() -> None:
    machine = of_two()
    assert joined(machine, 1, "late", index=7, place="digits-replica-7-1").index == 7
    refused = machine.request(a_member(1, "no pod", index=8))
    assert isinstance(refused, messages.Refused)


def a_loop(machine: Machine, instance: str, index: int | None = None) -> MemberId:
    return machine.member(Role.REPLICA, index, instance, samples=None, test_samples=None)


def test_a_loop_takes_no_index_that_a_job_which_grows_takes_next() -> None:
    machine = of_two()
    loops = [a_loop(machine, f"loop-{number}") for number in range(2)]
    assert [loop.index for loop in loops] == [MOST_REPLICAS - 1, MOST_REPLICAS - 2]
    for partition in (0, 1):
        joined(machine, partition, "ef"[partition], index=2, place=f"digits-replica-2-{partition}")
    assert [refusal(machine, loop) for loop in loops] == [None, None]
    assert machine.state.num_live_replicas == 5


@pytest.mark.parametrize("partition", [0, 1])
def test_a_process_of_several_never_joins_one_that_is_alone(partition: int) -> None:
    machine = of_two()
    loop = a_loop(machine, "loop", 2)
    late = joined(machine, partition, "late", index=2, place=f"digits-replica-2-{partition}")
    assert (late.partition, late.incarnation) == (partition, 2)
    assert refusal(machine, loop) is RefusalReason.OLD_INCARNATION
    assert not group(machine, 2).is_whole
    assert not group(machine, 2).own_data


def test_a_loop_never_takes_a_free_place_in_a_group_that_forms() -> None:
    machine = of_two()
    died(machine, next(group(machine).members))
    lone = joined(machine, 1, "b2")
    assert a_loop(machine, "loop", 0).incarnation == 3
    assert refusal(machine, lone) is RefusalReason.OLD_INCARNATION


def test_a_journal_keeps_groups_that_form_and_those_that_are_whole() -> None:
    machine = of_two()
    died(machine, next(group(machine).members))
    joined(machine, 1, "b2")
    kept = states.from_json(states.to_json(machine.state))
    assert kept.replicas == machine.state.replicas

    again = Machine(kept, partitions=2)
    again.coordinator.restarted(again.now, committed=None)
    assert joined(again, 0, "a2").incarnation == 2
    assert group(again).is_whole
    assert [refusal(again, member) for member in group(again, 1).members] == [None, None]


def test_of_a_group_of_one_nothing_more_is_written_than_ever() -> None:
    machine = Machine()
    machine.running()
    for content in (states.to_json(machine.state), *machine.ledgers.values()):
        assert b"partition" not in content.replace(b'"partition":0,"name"', b"")
        assert b"followers" not in content


def test_status_tells_of_each_member_by_its_own_name() -> None:
    machine = of_two()
    died(machine, next(group(machine, 1).members))
    joined(machine, 1, "d2", index=1)
    coordinator = machine.coordinator
    said = status.status(machine.state, coordinator.stages, coordinator.watch, machine.now)
    assert [(one["name"], one["incarnation"], one["state"]) for one in said["members"]] == [
        ("shard-0", 1, "live"),
        ("replica-0-0", 1, "live"),
        ("replica-0-1", 1, "live"),
        ("replica-1-1", 2, "forming"),
    ]
    assert said["liveReplicas"] == 1


def test_shards_hear_who_each_process_of_a_replica_is() -> None:
    machine = Machine(partitions=2)
    shard = machine.member(Role.SHARD, 0, "s0")

    joined(machine, 1, "b")
    early = machine.heartbeat(shard)
    joined(machine, 0, "a")
    late = machine.heartbeat(shard)

    assert isinstance(early, messages.HeartbeatReply)
    assert isinstance(late, messages.HeartbeatReply)
    assert (early.instances, late.instances) == ({}, {0: ("a", "b")})
