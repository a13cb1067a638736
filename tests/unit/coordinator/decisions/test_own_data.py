"""The account of a joined loop's samples, which belong to no epoch of the job."""

from builders.control_members import LAYOUT
from builders.machines import Machine
from disttrain.coordinator.journal import member_entries, resume
from disttrain.coordinator.phases import IncarnationState
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import START, MemberId, Progress, SenderPosition
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.transport.header import Role


def joined(machine: Machine) -> MemberId:
    """A joined loop that has told of 64 samples."""
    machine.running()
    reply = machine.request(
        messages.Join(role=Role.REPLICA, index=900, instance="loop", pid=900, layout=LAYOUT)
    )
    assert isinstance(reply, messages.Joined)
    machine.heartbeat(reply.member, ReplicaReport(progress=Progress(samples=64)))
    assert machine.state.samples == 64
    return reply.member


def test_loops_get_indices_of_their_own_above_those_of_the_jobs_replicas() -> None:
    machine = Machine(replicas=4)
    machine.running()
    loops = [joined_by_itself(machine, f"loop-{number}") for number in range(3)]
    assert [loop.index for loop in loops] == [4, 5, 6]
    assert all(machine.state.replicas[loop.index].live for loop in loops)


def joined_by_itself(machine: Machine, instance: str) -> MemberId:
    join = messages.Join(role=Role.REPLICA, index=None, instance=instance, pid=1, layout=LAYOUT)
    reply = machine.request(join)
    assert isinstance(reply, messages.Joined)
    return reply.member


def test_an_older_heartbeat_that_comes_after_a_newer_one_is_no_news() -> None:
    machine = Machine()
    machine.running()
    loop = joined_by_itself(machine, "loop")
    most = 0
    for samples in (100, 200, 100, 300):
        most = max(most, samples)
        report = ReplicaReport(progress=Progress(samples=samples), steps=samples)
        machine.heartbeat(loop, report)
        assert machine.state.replicas[loop.index].progress.samples == most
        assert machine.coordinator.watch.replicas[loop].steps == most
    assert machine.state.data.samples_outside == 300


def test_what_a_loop_did_after_its_last_heartbeat_counts_when_it_leaves() -> None:
    machine = Machine()
    loop = joined(machine)

    leave = messages.Leave(member=loop, reason="over", progress=Progress(samples=96))
    machine.request(leave)

    assert machine.state.samples == 96


def test_what_any_shard_has_applied_of_a_dead_loop_counts() -> None:
    machine = Machine()
    loop = joined(machine)

    for shard, samples in enumerate((96, 128, 32)):
        sender = SenderPosition(
            index=loop.index, incarnation=loop.incarnation, position=START, samples=samples
        )
        answer = member_entries.FenceAnswered(shard=shard, sender=sender, partial_chunks=0)
        answer.apply(machine.state)

    assert machine.state.samples == 128


def test_what_one_shard_said_of_a_dead_loop_counts_once_if_the_job_is_resumed_then() -> None:
    machine = Machine()
    loop = joined(machine)
    lost = member_entries.MemberLost(
        member=loop, state=IncarnationState.DEAD, reason="killed", shards=(0, 1)
    )
    lost.apply(machine.state)
    sender = SenderPosition(
        index=loop.index, incarnation=loop.incarnation, position=START, samples=96
    )
    member_entries.FenceAnswered(shard=0, sender=sender, partial_chunks=0).apply(machine.state)

    resumed = resume.from_ledger(machine.state, "checkpoints/00000002", 2)

    assert resumed.samples == 96
    assert resumed.count_resumed(loop.index, loop.incarnation, 128) == 128 - 96
