"""What a job of many members asks of the coordinator: little for each, whatever their number."""

from typing import NoReturn

import pytest

from builders.machines import BASE, Machine
from disttrain.coordinator.decisions import news
from disttrain.coordinator.journal import member_entries, state
from disttrain.coordinator.journal.state import IssuedCommand, State
from disttrain.coordinator.protocol import commands, messages
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.transport.header import Role


def _beat(machine: Machine, member: MemberId, epoch: int) -> messages.HeartbeatReply:
    reply = machine.request(messages.Heartbeat(member=member, epoch=epoch))
    assert isinstance(reply, messages.HeartbeatReply)
    return reply


def test_who_may_push_is_one_list_and_no_command_to_each_shard() -> None:
    machine = Machine(shards=3, replicas=4)
    shards = [machine.member(Role.SHARD, index, f"s{index}") for index in range(3)]
    before = len(machine.state.orders)
    members = [machine.member(Role.REPLICA, index, f"r{index}") for index in range(4)]
    given = list(machine.state.orders.values())[before:]
    assert {type(issued.order) for issued in given} == {commands.Configure}
    for shard in shards:
        heard = _beat(machine, shard, 0)
        assert heard.replicas == {member.index: member.incarnation for member in members}
        assert heard.shards is None
        assert _beat(machine, shard, heard.epoch).replicas is None, "it knows them"


def test_a_shard_hears_of_those_who_end_and_join() -> None:
    machine = Machine()
    shard, one, two = machine.running()
    heard = _beat(machine, shard, 0)
    machine.request(messages.Leave(member=one, reason="SIGTERM"))
    again = _beat(machine, shard, heard.epoch)
    assert (again.epoch > heard.epoch, again.replicas) == (True, {two.index: two.incarnation})
    new = machine.member(Role.REPLICA, 0, "another")
    assert _beat(machine, shard, again.epoch).replicas == {0: new.incarnation, 1: two.incarnation}


def test_a_shard_that_joins_is_told_whom_to_admit_before_it_serves() -> None:
    machine = Machine()
    _, one, two = machine.running()
    joined = machine.join(Role.SHARD, 0, "next incarnation")
    assert isinstance(joined, messages.Joined)
    assert joined.replicas == {one.index: one.incarnation, two.index: two.incarnation}
    assert joined.epoch == machine.state.replicas_epoch


def test_addresses_are_told_again_only_when_they_have_changed() -> None:
    machine = Machine()
    _, one, _ = machine.running()
    heard = _beat(machine, one, 0)
    assert heard.shards is not None
    assert [shard.incarnation for shard in heard.shards] == [1]
    machine.member(Role.REPLICA, 1, "another")
    assert _beat(machine, one, heard.epoch).shards is None
    machine.member(Role.SHARD, 0, "next incarnation")
    again = _beat(machine, one, heard.epoch)
    assert again.shards is not None
    assert [shard.incarnation for shard in again.shards] == [2]


def test_after_a_restart_of_the_coordinator_everybody_is_told_again() -> None:
    machine = Machine()
    shard, one, _ = machine.running()
    epochs = {member: _beat(machine, member, 0).epoch for member in (shard, one)}
    machine.coordinator.restarted(machine.now, committed=None)
    assert _beat(machine, shard, epochs[shard]).replicas is not None
    assert _beat(machine, one, epochs[one]).shards is not None


class Unsearched(dict[int, IssuedCommand]):
    """Commands that are found by their number only."""

    def values(self) -> NoReturn:
        pytest.fail("all commands were looked at for one member")


def test_a_heartbeat_looks_at_the_commands_of_its_member_only() -> None:
    machine = Machine()
    shard, one, two = machine.running()
    machine.request(messages.Stop(reason="Ctrl-C"))
    given = dict(machine.state.orders)
    assert {issued.member for issued in given.values()} == {one, two}
    machine.state.orders = Unsearched(given)
    assert [command.order for command in _beat(machine, two, 0).orders] == [commands.Drain()]
    assert _beat(machine, shard, 0).orders == ()


@pytest.mark.parametrize(
    ("members", "heartbeat_seconds"), [(3, 1.0), (100, 1.0), (500, 5.0), (1100, 11.0), (5000, 15.0)]
)
def test_the_more_members_the_less_often_each_is_heard(
    members: int, heartbeat_seconds: float
) -> None:
    intervals = news.intervals(BASE, members)
    assert intervals.heartbeat_seconds == pytest.approx(heartbeat_seconds)
    assert intervals.heartbeat_seconds <= BASE.member_timeout_seconds / 4


def test_a_short_timeout_bounds_every_pause() -> None:
    machine = Machine(heartbeat_seconds=0.5, lease_seconds=2.0, member_timeout_seconds=3.0)
    _, one, _ = machine.running()
    intervals = _beat(machine, one, 0).intervals
    assert intervals == messages.Intervals(heartbeat_seconds=0.5, repeat_seconds=0.75)


def test_a_journal_with_a_command_for_each_pair_is_read_without_them() -> None:
    shard = MemberId(role=Role.SHARD, index=0, incarnation=1)
    admit = commands.Admit(index=3, incarnation=1, live_replicas=1)
    found = State()
    member_entries.CommandIssued(id=7, member=shard, order=admit, shards={}).apply(found)
    assert (found.orders, found.next_order) == ({}, 8)
    found.orders[7] = IssuedCommand(id=7, member=shard, order=admit)
    found.orders[8] = IssuedCommand(id=8, member=shard, order=commands.End(reason="Epochs"))
    assert list(state.from_json(state.to_json(found)).orders) == [8]


def test_many_replicas_that_wait_for_work_ask_less_often() -> None:
    few, many = Machine(), Machine(replicas=100)
    first = few.member(Role.REPLICA, 0, "r")
    waiting = [many.member(Role.REPLICA, index, f"r{index}") for index in range(100)]
    assert few.work(first).after_seconds == pytest.approx(0.1)
    assert many.work(waiting[0]).after_seconds == pytest.approx(0.5)
