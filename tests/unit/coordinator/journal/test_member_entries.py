"""News of incarnations that are no more, and answers that come twice, change nothing."""

from disttrain.coordinator.journal.group import Group
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
