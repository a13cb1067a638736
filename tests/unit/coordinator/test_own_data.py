"""The account of a plain loop's samples, which belong to no epoch of the job."""

from builders.control_members import LAYOUT
from builders.machines import Machine
from disttrain.coordinator import messages
from disttrain.coordinator.fields import Progress
from disttrain.coordinator.reports import ReplicaReport
from disttrain.transport.header import Role


def test_what_a_loop_did_after_its_last_heartbeat_counts_when_it_leaves() -> None:
    machine = Machine()
    machine.running()
    joined = machine.request(
        messages.Join(role=Role.REPLICA, index=900, instance="loop", pid=900, layout=LAYOUT)
    )
    assert isinstance(joined, messages.Joined)
    machine.heartbeat(joined.member, ReplicaReport(progress=Progress(samples=64)))
    assert machine.state.samples == 64

    leave = messages.Leave(member=joined.member, reason="over", progress=Progress(samples=96))
    machine.request(leave)

    assert machine.state.samples == 96
