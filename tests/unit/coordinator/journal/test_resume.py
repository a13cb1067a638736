"""What a job that starts again from a checkpoint knows of the run before."""

import pytest

from builders.machines import Machine
from disttrain.coordinator.journal import resume, state
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.protocol import commands, fields, messages
from disttrain.coordinator.protocol.fields import LostUpdates, MemberId, Position, SenderPosition
from disttrain.transport.header import Role


@pytest.mark.parametrize("shards", [1, 2, 3, 4])
def test_losses_of_shards_that_are_no_more_count_once(shards: int) -> None:
    state = State()
    for shard, lost in enumerate((1, 2, 4)):
        state.totals.set_updates_lost(shard, LostUpdates(index=0, incarnation=1, lost=lost))

    resumed = resume.from_ledger(state, "checkpoints/00000002", shards)
    told = [1, 2, 4] if shards >= 3 else [sum((1, 2, 4)[s::shards]) for s in range(shards)]
    for shard, lost in enumerate(told):
        sender = LostUpdates(index=0, incarnation=1, lost=lost)
        assert resumed.totals.lost_by(shard, sender) == lost
        resumed.totals.set_updates_lost(shard, sender)

    assert resumed.totals.updates_lost == {"replica-0": 7}


@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("resumes", [1, 2])
def test_nothing_of_an_incarnation_that_ended_before_the_checkpoint_comes_again(
    *, is_replaced: bool, resumes: int
) -> None:
    machine, dead = _with_a_dead_replica()
    if is_replaced:
        machine.member(Role.REPLICA, dead.index, "its next incarnation")
    _answer_fences(machine, _reached(dead))

    for _ in range(resumes):
        machine = _resumed(machine, _reached(dead))

        assert machine.state.data.samples_repeated == 0


@pytest.mark.parametrize("is_replaced", [False, True])
def test_what_a_dead_replica_had_not_told_comes_again_if_no_shard_had_told_it(
    *, is_replaced: bool
) -> None:
    machine, dead = _with_a_dead_replica()
    if is_replaced:
        machine.member(Role.REPLICA, dead.index, "its next incarnation")

    again = _resumed(machine, _reached(dead))

    assert again.state.data.samples_repeated == REACHED - TOLD


@pytest.mark.parametrize("resumes", [1, 2])
def test_all_that_shards_hold_of_an_incarnation_that_began_after_the_checkpoint_comes_again(
    resumes: int,
) -> None:
    machine, dead = _with_a_dead_replica()
    _answer_fences(machine, _reached(dead))
    _save(machine)
    later = machine.member(Role.REPLICA, dead.index, "its next incarnation")

    for _ in range(resumes):
        machine = _from_last_ledger(machine, _reached(dead), _reached(later))
        _save(machine)

        assert machine.state.data.samples_repeated == REACHED


TOLD, REACHED = 4, 8
"""Samples of a replica that the coordinator was told of, and that the shard has applied."""


def _with_a_dead_replica() -> tuple[Machine, MemberId]:
    """It pushed once more than it said; the shard has not yet been asked."""
    machine = Machine(checkpoint_seconds=5.0)
    _, dead, _ = machine.running()
    lease, *_ = machine.work(dead).leases
    machine.reach(dead, lease.id, TOLD)
    group = machine.state.replicas[dead.index]
    machine.request(
        messages.MemberDied(role=Role.REPLICA, index=dead.index, pid=group.pid, exit_code=-9)
    )
    return machine, dead


def _reached(replica: MemberId) -> SenderPosition:
    return SenderPosition(
        index=replica.index,
        incarnation=replica.incarnation,
        position=Position(lease=1, offset=REACHED),
        samples=REACHED,
    )


def _answer_fences(machine: Machine, sender: SenderPosition) -> None:
    for issued in list(machine.state.orders.values()):
        if isinstance(issued.order, commands.Fence):
            result = commands.Fenced(sender=sender)
            done = messages.CommandDone(member=issued.member, order=issued.id, result=result)
            machine.request(done)


def _save(machine: Machine) -> None:
    before = len(machine.ledgers)
    machine.tick(5.0)
    machine.obey()
    assert len(machine.ledgers) == before + 1


def _resumed(machine: Machine, *senders: SenderPosition) -> Machine:
    """Another run, from a checkpoint that is taken now, and whose shard has all of these."""
    _save(machine)
    return _from_last_ledger(machine, *senders)


def _from_last_ledger(machine: Machine, *senders: SenderPosition) -> Machine:
    ledger = state.from_json(machine.ledgers[max(machine.ledgers)])
    again = Machine(state=resume.from_ledger(ledger, "checkpoints/1", 1), checkpoint_seconds=5.0)
    restored = fields.Restored(
        initialised=True,
        checkpoint=max(machine.ledgers),
        version=len(senders),
        senders=tuple(
            fields.RestoredSender(sender=sender, acknowledged=1, lost=0) for sender in senders
        ),
    )
    again.member(Role.SHARD, 0, "s", restored=restored)
    again.member(Role.REPLICA, 0, "r")
    again.obey()
    return again
