"""News of incarnations that are no more, and answers that come twice, change nothing."""

from disttrain.coordinator.journal.group import Group, Process
from disttrain.coordinator.journal.member_entries import FenceAnswered, MemberLost
from disttrain.coordinator.journal.state import Fencing, State, to_json
from disttrain.coordinator.phases import IncarnationState
from disttrain.coordinator.protocol.fields import MemberId, Position, SenderPosition
from disttrain.transport.header import Role


def test_an_older_incarnation_is_not_lost_again() -> None:
    state = State(replicas={0: Group(role=Role.REPLICA, index=0, incarnation=2, instance="b")})
    before = to_json(state)
    older = MemberId(role=Role.REPLICA, index=0, incarnation=1)

    MemberLost(member=older, state=IncarnationState.DEAD, reason="silent").apply(state)

    assert to_json(state) == before


def test_a_shard_answers_a_fence_once() -> None:
    state = State(fencings=[Fencing(index=0, incarnation=1, waiting=[0, 1])])
    sender = SenderPosition(index=0, incarnation=1, position=Position(lease=3))
    answer = FenceAnswered(shard=0, sender=sender, partial_chunks=2)

    answer.apply(state)
    answer.apply(state)

    (fencing,) = state.fencings
    assert (fencing.waiting, state.totals.partial_chunks) == ([1], 2)


def test_processes_are_told_in_their_order_and_by_the_names_of_who_starts_them() -> None:
    group = Group(role=Role.REPLICA, index=3, incarnation=1, partitions=3)
    for partition in (2, 0, 1):
        group.add(partition, Process(instance=f"process {partition}", pid=1))
    found = [member.process_name(group.partitions) for member in group.members]
    assert found == ["replica-3-0", "replica-3-1", "replica-3-2"]
    assert [group.process_name(partition) for partition in range(3)] == found


def test_a_process_that_is_alone_has_the_name_of_its_group() -> None:
    for role, name in ((Role.REPLICA, "replica-3"), (Role.SHARD, "shard-3")):
        assert MemberId(role=role, index=3, incarnation=1).process_name(1) == name
