"""Who has failed comes again no sooner than restartBackoff says; nobody else waits."""

from collections.abc import Callable
from typing import Any

import pytest

from builders.grouped_members import a_member
from builders.machines import BASE, Machine
from disttrain.coordinator.phases import IncarnationState
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import MemberId, Progress
from disttrain.job.failure_policy import RestartBackoff
from disttrain.launch.exit_code import ExitCode
from disttrain.transport.header import Role

BACKOFF = RestartBackoff(initial_seconds=10.0, max_seconds=35.0)


def a_machine(**settings: Any) -> Machine:
    return Machine(restart_backoff=BACKOFF, **settings)


def wait_of(reply: messages.Reply) -> float:
    """Seconds; 0: it has joined."""
    if isinstance(reply, messages.ComeAgain):
        return reply.seconds
    assert isinstance(reply, messages.Joined), reply
    return 0.0


def die(machine: Machine, member: MemberId, exit_code: int = -9) -> None:
    pid = machine.state.groups(member.role)[member.index].processes[member.partition].pid
    died = messages.MemberDied(
        role=member.role,
        index=member.index,
        partition=member.partition,
        pid=pid,
        exit_code=exit_code,
    )
    machine.request(died)


@pytest.mark.parametrize("role", [Role.REPLICA, Role.SHARD])
def test_who_died_may_join_when_the_time_is_over(role: Role) -> None:
    machine = a_machine()
    machine.running()
    machine.heartbeat(MemberId(role=role, index=0, incarnation=1))
    die(machine, MemberId(role=role, index=0, incarnation=1))

    machine.now += 4.0
    assert wait_of(machine.join(role, 0, "next")) == 6.0
    assert machine.state.groups(role)[0].state is IncarnationState.DEAD
    machine.now += 6.0
    assert wait_of(machine.join(role, 0, "next")) == 0.0


def test_the_wait_doubles_up_to_the_longest_and_begins_again_after_a_long_life() -> None:
    machine = a_machine()
    waits: list[float] = []
    for _ in range(4):
        member = machine.member(Role.REPLICA, 0, f"process {len(waits)}")
        machine.heartbeat(member)
        die(machine, member)
        waits.append(wait_of(machine.join(Role.REPLICA, 0, f"process {len(waits)}, next")))
        machine.now += waits[-1]
    assert waits == [10.0, 20.0, 35.0, 35.0]

    member = machine.member(Role.REPLICA, 0, "lives long")
    machine.now += BACKOFF.max_seconds + 1.0
    machine.heartbeat(member)
    die(machine, member)
    assert wait_of(machine.join(Role.REPLICA, 0, "next")) == 10.0


def test_time_counts_from_the_last_word_of_a_process_whose_end_nobody_told() -> None:
    machine = a_machine()
    machine.running()
    machine.now += 7.0

    assert wait_of(machine.join(Role.REPLICA, 0, "started again by a kubelet")) == 3.0
    assert machine.state.replicas[0].state is IncarnationState.DEAD, "its work goes to others"
    machine.now += BASE.member_timeout_seconds
    machine.tick()
    assert machine.state.replicas[1].state is IncarnationState.DEAD, "it was silent"
    assert wait_of(machine.join(Role.REPLICA, 1, "comes late")) == 0.0


def leaves(machine: Machine, member: MemberId) -> None:
    machine.request(messages.Leave(member=member, reason="SIGTERM", progress=Progress()))


def leaves_without_a_word_of_progress(machine: Machine, member: MemberId) -> None:
    machine.request(messages.Leave(member=member, reason="SIGTERM"))


def asks_for_its_next_incarnation(machine: Machine, member: MemberId) -> None:
    die(machine, member, ExitCode.RESTART)


@pytest.mark.parametrize(
    "end", [leaves, leaves_without_a_word_of_progress, asks_for_its_next_incarnation]
)
def test_an_end_that_is_no_failure_keeps_nobody_waiting(
    end: Callable[[Machine, MemberId], None],
) -> None:
    machine = a_machine()
    _, replica, _ = machine.running()
    end(machine, replica)
    assert not machine.state.replicas[0].live
    assert wait_of(machine.join(Role.REPLICA, 0, "next")) == 0.0


def test_all_processes_of_a_replica_wait_to_the_same_moment() -> None:
    machine = a_machine(partitions=2)
    for partition in (0, 1):
        machine.request(a_member(partition, f"process {partition}"))
    die(machine, MemberId(role=Role.REPLICA, index=0, partition=1, incarnation=1))

    machine.now += 1.0
    assert wait_of(machine.request(a_member(0, "next 0"))) == 9.0
    machine.now += 2.0
    assert wait_of(machine.request(a_member(1, "next 1"))) == 7.0
    machine.now += 7.0
    assert wait_of(machine.request(a_member(0, "next 0"))) == 0.0
    assert wait_of(machine.request(a_member(1, "next 1"))) == 0.0
    assert machine.state.replicas[0].is_whole


def test_a_pod_is_known_by_its_name_and_a_new_one_has_failed_never() -> None:
    machine = a_machine()
    for name in "ab":
        member = machine.member(Role.REPLICA, None, name, place=f"pod-{name}")
        die(machine, member)

    assert wait_of(machine.join(Role.REPLICA, None, "b again", place="pod-b")) == 10.0
    assert wait_of(machine.join(Role.REPLICA, None, "c", place="pod-c")) == 0.0
    assert wait_of(machine.join(Role.REPLICA, None, "a again", place="pod-a")) == 10.0


def test_a_loop_that_brings_its_own_data_never_waits() -> None:
    machine = a_machine()
    machine.running()
    loop = machine.member(Role.REPLICA, None, "loop", samples=None)
    die(machine, loop)
    assert wait_of(machine.join(Role.REPLICA, None, "another", samples=None)) == 0.0


def test_a_coordinator_that_is_started_again_lets_everybody_join() -> None:
    machine = a_machine()
    _, replica, _ = machine.running()
    die(machine, replica)
    assert wait_of(machine.join(Role.REPLICA, 0, "next")) > 0.0
    later = Machine(machine.state, restart_backoff=BACKOFF)
    assert wait_of(later.join(Role.REPLICA, 0, "next")) == 0.0
