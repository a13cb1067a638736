"""Whose end is believed, whose silence counts for how long, whose progress is taken."""

from builders.machines import BASE, Machine
from disttrain.coordinator.phases import FailureReason, IncarnationState, Phase
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import MemberId, Position, Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.transport.header import Role


def _state_of(machine: Machine, member: MemberId) -> IncarnationState:
    found = machine.state.group(member)
    assert found is not None
    return found.state


def _drain(machine: Machine, member: MemberId) -> None:
    machine.muted.add(member)
    machine.request(messages.Stop(reason="Ctrl-C"))
    machine.tick()
    machine.obey()
    assert machine.phase() is Phase.DRAINING


def test_the_end_of_an_earlier_process_leaves_the_present_incarnation_alone() -> None:
    machine = Machine()
    machine.running()
    present = machine.member(Role.REPLICA, 0, "a longer name is another pid")
    pid = machine.state.replicas[0].pid
    died = messages.MemberDied(role=Role.REPLICA, index=0, pid=pid - 1, exit_code=-9)

    machine.request(died)
    assert _state_of(machine, present) is IncarnationState.LIVE

    machine.request(messages.MemberDied(role=Role.REPLICA, index=0, pid=pid, exit_code=-9))
    assert _state_of(machine, present) is IncarnationState.DEAD


def test_while_replicas_drain_one_is_waited_for_no_longer_than_a_lease() -> None:
    machine = Machine()
    shard, silent, _ = machine.running()
    assert BASE.lease_seconds < BASE.member_timeout_seconds
    _drain(machine, silent)

    machine.tick(BASE.lease_seconds - 1)
    assert _state_of(machine, silent) is IncarnationState.LIVE
    machine.tick(1)
    assert _state_of(machine, silent) is IncarnationState.DEAD
    assert _state_of(machine, shard) is IncarnationState.LIVE, "a shard has as long as ever"


def test_what_a_drained_replica_says_it_has_done_since_is_not_taken() -> None:
    machine = Machine()
    _, silent, drained = machine.running()
    lease = machine.work(drained).leases[0]
    machine.reach(drained, lease.id, 4)
    _drain(machine, silent)
    found = machine.state.replicas[drained.index]
    assert found.drained
    more = Progress(position=Position(lease=lease.id, offset=8), samples=8)

    machine.heartbeat(drained, ReplicaReport(progress=more))

    assert machine.state.replicas[drained.index].progress == found.progress
    assert found.progress.samples == 4


def test_after_the_end_nobody_is_waited_for_because_another_died() -> None:
    machine = Machine()
    shard, failing, other = machine.running()
    machine.muted |= {shard, failing, other}
    machine.request(messages.Fail(reason=FailureReason.TASK_ERROR, message="a mistake"))
    told = {issued.member for issued in machine.state.orders.values()}
    assert told == {shard, failing, other}

    pid = machine.state.replicas[failing.index].pid
    machine.request(
        messages.MemberDied(role=Role.REPLICA, index=failing.index, pid=pid, exit_code=3)
    )
    kinds = {issued.member: issued.order.kind for issued in machine.state.orders.values()}
    assert kinds == {shard: "end", other: "end"}
