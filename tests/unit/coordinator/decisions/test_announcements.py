"""When members hear unasked of others."""

from builders.machines import Machine
from disttrain.coordinator.decisions.machine import Coordinator
from disttrain.coordinator.protocol import messages
from disttrain.transport.header import Role


def _due(
    coordinator: Coordinator, now: float, members: int = 2
) -> dict[Role, messages.HeartbeatReply]:
    return dict(coordinator.announcements(now, members))


def test_each_change_is_told_once_to_those_whom_it_concerns() -> None:
    machine = Machine()
    assert _due(machine.coordinator, 1.0) == {}
    shard = machine.member(Role.SHARD, 0, "s")
    told = _due(machine.coordinator, 2.0)[Role.REPLICA]
    assert told.shards is not None
    assert [address.incarnation for address in told.shards] == [shard.incarnation]
    replica = machine.member(Role.REPLICA, 1, "r")
    assert _due(machine.coordinator, 3.0)[Role.SHARD].replicas == {1: replica.incarnation}
    assert _due(machine.coordinator, 4.0) == {}


def test_of_many_who_join_together_many_are_told_seldom() -> None:
    machine = Machine(replicas=50)
    tellings = 0
    for number in range(50):
        machine.member(Role.REPLICA, number, f"r{number}")
        tellings += len(_due(machine.coordinator, 0.01 * number, members=200))
    assert tellings == 3
    assert len(_due(machine.coordinator, 9.0)[Role.SHARD].replicas or {}) == 50
