"""What members give each other while their group forms."""

from collections.abc import Callable
from pathlib import Path

import pytest

from builders.grouped_members import a_member
from builders.machines import Machine
from disttrain.coordinator.errors import MessageRefused
from disttrain.coordinator.protocol import messages, payloads
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.groups.errors import FormsAnew, GroupLost
from disttrain.groups.meeting import FolderMeeting, Meeting
from disttrain.transport.header import Role


def a_pair(machine: Machine) -> list[MemberId]:
    replies = [machine.request(a_member(partition, "ab"[partition])) for partition in (0, 1)]
    return [reply.member for reply in replies if isinstance(reply, messages.Joined)]


def meeting(
    machine: Machine, member: MemberId, sleep: Callable[[float], None] = lambda _: None
) -> Meeting:
    def ask(request: messages.Request) -> messages.Reply:
        return machine.request(payloads.parse_request(payloads.encode_request(request)))

    return Meeting(ask, member, sleep)


def test_a_value_is_waited_for_until_another_member_gives_it() -> None:
    machine = Machine(partitions=2)
    first, second = a_pair(machine)
    giver, pauses = meeting(machine, second), list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            giver.put("1", bytes(range(256)))

    assert meeting(machine, first, sleep).get("1") == bytes(range(256))
    assert pauses == sorted(pauses)


def test_who_is_told_to_end_waits_no_longer() -> None:
    machine = Machine(partitions=2)
    first, _ = a_pair(machine)

    def sleep(_: float) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        meeting(machine, first, sleep).get("1")


def test_a_coordinator_that_was_started_again_has_lost_what_it_was_given() -> None:
    machine = Machine(partitions=2)
    first, second = a_pair(machine)

    def waits(_: float) -> None:
        pytest.fail("what an earlier incarnation of the coordinator was given never comes")

    early, late = meeting(machine, first, waits), meeting(machine, second)
    early.put("0", b"here")
    again = Machine(machine.state, partitions=2)
    again.coordinator.restarted(again.now, committed=None)
    machine.coordinator = again.coordinator

    with pytest.raises(FormsAnew, match="started again while the group formed"):
        early.get("1")
    late.put("1", b"there")
    assert late.get("1") == b"there"


def test_an_incarnation_that_is_over_meets_nobody() -> None:
    machine = Machine(partitions=2)
    first, second = a_pair(machine)
    meeting(machine, second).put("1", b"old")
    machine.request(a_member(1, "b2"))
    with pytest.raises(GroupLost, match=r"replica-0 cannot meet its group: .* no member any more"):
        meeting(machine, first).get("1")


def test_of_an_earlier_incarnation_nothing_is_known() -> None:
    machine = Machine(partitions=2)
    _, second = a_pair(machine)
    meeting(machine, second).put("1", b"old")
    newer = [machine.request(a_member(partition, f"{partition}2")) for partition in (0, 1)]
    (member,) = [one.member for one in newer[:1] if isinstance(one, messages.Joined)]
    reply = machine.request(messages.Meet(member=member, wanted=("1",)))
    assert reply == messages.Met(coordinator=1, values={})


def test_a_value_that_was_found_is_not_asked_for_again() -> None:
    machine = Machine(partitions=2)
    first, second = a_pair(machine)
    meeting(machine, second).put("1", b"there")
    mine = meeting(machine, first)
    mine.get("1")
    machine.request(a_member(1, "b2"))
    assert mine.get("1") == b"there"


def is_kept(machine: Machine, member: MemberId, key: str) -> bool:
    reply = machine.request(messages.Meet(member=member, wanted=(key,)))
    assert isinstance(reply, messages.Met)
    return key in reply.values


def test_of_a_group_that_takes_steps_nothing_is_kept() -> None:
    machine = Machine(partitions=2)
    first, second = a_pair(machine)
    meeting(machine, second).put("1", b"there")
    machine.heartbeat(first, ReplicaReport())
    assert is_kept(machine, first, "1"), "it may be forming"
    machine.heartbeat(second, ReplicaReport(steps=1))
    assert is_kept(machine, first, "1"), "the first process alone tells of steps"
    machine.heartbeat(first, ReplicaReport(steps=1))
    assert not is_kept(machine, first, "1")


def test_of_groups_that_have_ended_nothing_is_kept_once_others_meet() -> None:
    machine = Machine(partitions=2)
    first, _ = a_pair(machine)
    meeting(machine, first).put("0", b"there")
    machine.request(messages.Leave(member=first, reason="SIGTERM"))
    reply = machine.request(a_member(0, "c", index=1))
    assert isinstance(reply, messages.Joined)
    meeting(machine, reply.member).put("0", b"there")
    assert list(machine.coordinator._meetings._found) == [(Role.REPLICA, 1)]


@pytest.mark.parametrize("role", [Role.REPLICA, Role.SHARD])
def test_who_is_alone_meets_nobody(role: Role) -> None:
    machine = Machine()
    member = machine.member(role, 0, "a")
    with pytest.raises(GroupLost, match="-0 is alone, and meets nobody"):
        meeting(machine, member).put("0", b"here")


def test_a_member_gives_a_bounded_number_of_bounded_values() -> None:
    machine = Machine(partitions=2)
    first, _ = a_pair(machine)
    many = meeting(machine, first)
    for number in range(32):
        many.put(str(number), b"")
    with pytest.raises(GroupLost, match="a group of 2 may give at most 32 values"):
        many.put("32", b"")
    too_long = messages.Meet(member=first, put={"k": "x" * (messages.MOST_VALUE_BYTES * 2)})
    with pytest.raises(MessageRefused):
        payloads.parse_request(payloads.encode_request(too_long))
    with pytest.raises(MessageRefused):
        payloads.parse_request(
            payloads.encode_request(messages.Meet(member=first, wanted=("k" * 257,)))
        )


def test_processes_of_one_machine_meet_in_a_folder(tmp_path: Path) -> None:
    giver, pauses = FolderMeeting(tmp_path, lambda _: None), list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            giver.put("a/b" * 80, bytes(range(256)))

    assert FolderMeeting(tmp_path, sleep).get("a/b" * 80) == bytes(range(256))
    assert len(pauses) == 3
