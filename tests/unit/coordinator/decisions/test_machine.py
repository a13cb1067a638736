"""The whole machine, one story per test."""

from dataclasses import replace

import pytest

from builders.control_members import LAYOUT, a_join
from builders.machines import Machine
from disttrain.coordinator.journal import resume, state
from disttrain.coordinator.phases import FailureReason, Phase
from disttrain.coordinator.protocol import commands, fields, messages, payloads
from disttrain.coordinator.protocol.fields import LostUpdates, MemberId, Position, SenderPosition
from disttrain.coordinator.protocol.messages import RefusalReason
from disttrain.coordinator.protocol.reports import ReplicaReport, ShardReport
from disttrain.coordinator.status import status
from disttrain.job.roles import Durability
from disttrain.job.stop import Stop, TargetMetric
from disttrain.state.factors import Factors
from disttrain.state.layout import ModelLayout
from disttrain.transport.header import Role


def _summary(machine: Machine) -> status.Json:
    return status.summary(
        machine.state, machine.coordinator.stages, machine.coordinator.watch, machine.now
    )


def test_a_job_ends_complete_with_the_file_evaluated() -> None:
    machine = Machine()
    _, one, two = machine.running()
    assert machine.phase() is Phase.RUNNING
    machine.process_everything(one)
    machine.obey()
    assert machine.phase() is Phase.COMPLETE
    summary = _summary(machine)
    assert (summary["reason"], summary["samples"], summary["epochs"]) == ("Epochs", 64, 2)
    assert summary["finalMeasures"] == {"accuracy": 0.5}
    assert machine.evaluated == [None, "m"]
    assert machine.heartbeat(two) is not None


def test_the_same_instance_gets_the_same_answer_and_another_one_replaces_it() -> None:
    machine = Machine()
    first = machine.member(Role.REPLICA, 0, "a")
    assert machine.member(Role.REPLICA, 0, "a") == first
    second = machine.member(Role.REPLICA, 0, "b")
    assert second.incarnation == first.incarnation + 1
    late = machine.heartbeat(first)
    assert isinstance(late, messages.Refused)
    assert late.reason is RefusalReason.OLD_INCARNATION
    again = machine.join(Role.REPLICA, 0, "a")
    assert isinstance(again, messages.Refused)


def test_an_incarnation_that_never_joined_is_told_to_join() -> None:
    machine = Machine()
    machine.member(Role.REPLICA, 0, "a")
    other = machine.member(Role.REPLICA, 1, "b")
    unknown = type(other)(role=Role.REPLICA, index=1, incarnation=9)
    reply = machine.heartbeat(unknown)
    assert isinstance(reply, messages.Refused)
    assert reply.reason is RefusalReason.UNKNOWN_MEMBER


def test_a_process_without_an_index_gets_the_lowest_free_one() -> None:
    machine = Machine()
    machine.member(Role.REPLICA, 1, "a")
    chosen = machine.join(Role.REPLICA, None, "b")
    assert isinstance(chosen, messages.Joined)
    assert chosen.member.index == 0
    another = machine.join(Role.REPLICA, None, "c")
    assert isinstance(another, messages.Joined)
    assert another.member.index == 2, "somebody scales them while the job runs"


def test_who_joins_from_the_same_place_is_the_next_incarnation_of_the_same_replica() -> None:
    machine = Machine()
    machine.member(Role.SHARD, 0, "s")
    first, other, second = (
        machine.member(Role.REPLICA, None, instance, place=place)
        for place, instance in (("pod-a", "1"), ("pod-b", "2"), ("pod-a", "3"))
    )
    assert (second.index, second.incarnation) == (first.index, first.incarnation + 1)
    assert other.index != first.index
    assert machine.state.replicas[other.index].live
    refused = machine.heartbeat(first)
    assert isinstance(refused, messages.Refused)
    assert refused.reason is RefusalReason.OLD_INCARNATION


@pytest.mark.parametrize(
    ("samples", "reason"),
    [(0, FailureReason.EMPTY_DATA), (3, FailureReason.BATCH_TOO_LARGE)],
)
def test_data_that_cannot_be_trained_on_fails_the_job(samples: int, reason: str) -> None:
    machine = Machine()
    assert isinstance(machine.join(Role.REPLICA, 0, "a", samples=samples), messages.Refused)
    assert (machine.state.phase, machine.state.reason) == (Phase.FAILED, reason)


def test_a_replica_with_another_model_fails_the_job_with_the_difference() -> None:
    machine = Machine()
    machine.member(Role.REPLICA, 0, "a")
    join = messages.Join(
        role=Role.REPLICA,
        index=1,
        instance="b",
        pid=1,
        layout=ModelLayout(tensors=()),
        train_samples=32,
    )
    assert isinstance(machine.request(join), messages.Refused)
    assert machine.state.reason == FailureReason.WRONG_MODEL
    assert LAYOUT.tensors[0].name in machine.state.message


def test_a_replica_with_other_frozen_parameters_of_its_own_fails_the_job() -> None:
    machine = Machine()
    first, second = (replace(LAYOUT, own=f"xxh3_128:{number}") for number in (1, 2))
    assert isinstance(machine.request(a_join(Role.REPLICA, 0, "a", layout=first)), messages.Joined)

    assert isinstance(
        machine.request(a_join(Role.REPLICA, 1, "b", layout=second)), messages.Refused
    )
    assert machine.state.reason == FailureReason.WRONG_MODEL
    assert "frozen parameters have other values" in machine.state.message
    assert "spec.task.frozen: own" in machine.state.message


def in_a_group() -> ModelLayout:
    """The usual model, without weight decay."""
    return ModelLayout(tensors=(replace(LAYOUT.tensors[0], decay_factor=0.0),))


def test_a_replica_with_other_parameter_groups_fails_the_job_with_the_difference() -> None:
    machine = Machine()
    machine.member(Role.REPLICA, 0, "a")

    reply = machine.request(a_join(Role.REPLICA, 1, "b", layout=in_a_group()))

    assert isinstance(reply, messages.Refused)
    assert machine.state.reason == FailureReason.WRONG_MODEL
    assert f"'{LAYOUT.tensors[0].name}' is trained with (1.0, 1.0)" in machine.state.message


def test_the_groups_of_the_first_replica_are_told_to_all_and_a_joined_loop_needs_none() -> None:
    machine = Machine()
    joined = machine.request(a_join(Role.REPLICA, 0, "a", layout=in_a_group()))
    loop = machine.request(a_join(Role.REPLICA, 900, "loop", samples=None))

    for reply in (joined, loop):
        assert isinstance(reply, messages.Joined)
        assert reply.placement is not None
        assert reply.placement.factors == (Factors(0, 64, 1.0, 0.0),)


def test_a_plain_loop_with_another_model_is_refused_and_the_job_goes_on() -> None:
    machine = Machine()
    machine.running()
    join = messages.Join(
        role=Role.REPLICA, index=None, instance="l", pid=1, layout=ModelLayout(tensors=())
    )
    reply = machine.request(join)
    assert isinstance(reply, messages.Refused)
    assert reply.reason is RefusalReason.WRONG_MODEL
    assert LAYOUT.tensors[0].name in reply.message
    assert machine.phase() is Phase.RUNNING


def test_a_plain_loop_does_not_say_what_the_model_of_the_job_is() -> None:
    machine = Machine()
    join = messages.Join(role=Role.REPLICA, index=9, instance="l", pid=1, layout=LAYOUT)
    assert machine.coordinator.request(join, machine.now).reply is None
    machine.running()
    assert isinstance(machine.request(join), messages.Joined)


def test_work_is_given_again_when_the_answer_was_lost() -> None:
    machine = Machine()
    _, one, _ = machine.running()
    first = machine.work(one)
    assert len(first.leases) == 2
    assert machine.work(one).leases == first.leases
    assert machine.work(one, held=2, last_lease=2).leases == ()


def test_only_one_replica_works_during_the_warm_start() -> None:
    machine = Machine(warm_start_samples=8)
    _, one, two = machine.running()
    assert machine.work(two).wait
    assert machine.work(two).leases == ()
    leases = machine.work(one).leases
    machine.reach(one, leases[0].id, 7)
    assert machine.work(two).leases == ()
    machine.reach(one, leases[0].id, 8)
    assert machine.work(two).leases


def test_a_replica_that_joins_before_the_first_does_not_begin_the_warm_start() -> None:
    machine = Machine(warm_start_samples=8, member_timeout_seconds=20.0)
    machine.member(Role.SHARD, 0, "s")
    two = machine.member(Role.REPLICA, 1, "b")
    machine.obey()
    assert machine.phase() is Phase.RUNNING
    machine.tick(19.0)
    assert machine.work(two).leases == ()
    one = machine.member(Role.REPLICA, 0, "a")
    assert machine.work(two).leases == ()
    assert machine.work(one).leases


def test_a_warm_start_waits_no_longer_for_the_first_replica_than_one_is_missed() -> None:
    machine = Machine(warm_start_samples=8, member_timeout_seconds=20.0)
    shard = machine.member(Role.SHARD, 0, "s")
    two = machine.member(Role.REPLICA, 1, "b")
    machine.obey()
    machine.tick(19.0)
    machine.heartbeat(shard, ShardReport())
    assert machine.work(two).leases == ()
    machine.tick(1.0)
    assert machine.work(two).leases


def test_the_lowest_living_replica_goes_on_with_the_warm_start() -> None:
    machine = Machine(warm_start_samples=8)
    _, one, two = machine.running()
    machine.request(messages.MemberDied(role=Role.REPLICA, index=0, pid=2, exit_code=-9))
    assert machine.state.replicas[0].member == one
    assert not machine.state.replicas[0].live
    assert machine.work(two).leases


def test_a_silent_replica_loses_its_leases_and_learns_it_then_it_is_dead() -> None:
    machine = Machine(lease_seconds=10.0, member_timeout_seconds=20.0)
    shard, one, two = machine.running()
    leases = machine.work(one).leases
    for _ in range(3):
        machine.tick(4.0)
        machine.heartbeat(shard, ShardReport())
        machine.heartbeat(two, ReplicaReport())
    reply = machine.heartbeat(one, ReplicaReport())
    assert isinstance(reply, messages.HeartbeatReply)
    assert reply.lost_leases == tuple(lease.id for lease in leases)
    assert machine.work(one, last_lease=2).leases == ()
    machine.tick(19.0)
    machine.heartbeat(shard, ShardReport())
    machine.heartbeat(two, ReplicaReport())
    machine.tick(5.0)
    assert isinstance(machine.heartbeat(one), messages.Refused)


def test_a_pause_of_the_coordinator_itself_kills_nobody() -> None:
    machine = Machine(lease_seconds=10.0, member_timeout_seconds=20.0)
    _, one, two = machine.running()
    machine.now += 60.0
    machine.coordinator.watch.forgive(60.0, machine.now)
    machine.tick()
    assert [group.member for group in machine.state.replicas.values() if group.live] == [one, two]


def test_who_falls_silent_after_a_pause_is_noticed_as_soon_as_ever() -> None:
    machine = Machine(lease_seconds=10.0, member_timeout_seconds=20.0)
    _, one, _ = machine.running()
    machine.now += 3600.0
    machine.heartbeat(one, ReplicaReport())
    machine.coordinator.watch.forgive(3600.0, machine.now)
    machine.tick(21.0)
    assert isinstance(machine.heartbeat(one), messages.Refused)


def test_the_remainder_of_the_dead_is_taken_from_the_shards_lowest_position() -> None:
    machine = Machine()
    shard, one, _ = machine.running()
    lease = machine.work(one).leases[0]
    machine.reach(one, lease.id, 4)
    machine.muted.add(shard)
    machine.request(messages.MemberDied(role=Role.REPLICA, index=0, pid=2, exit_code=-9))
    fences = [o for o in machine.state.orders.values() if isinstance(o.order, commands.Fence)]
    assert len(fences) == 1
    sender = SenderPosition(
        index=0, incarnation=1, position=Position(lease=lease.id, offset=8), samples=8
    )
    fenced = commands.Fenced(sender=sender, partial_chunks=2)
    machine.request(messages.CommandDone(member=shard, order=fences[0].id, result=fenced))
    data = machine.state.data
    assert (data.samples_done, data.samples_partially_applied) == (8, 0)
    assert data.portions_requeued == 1
    assert _summary(machine)["partialChunks"] == 2


def test_a_restarted_shard_answers_for_the_dead_and_its_losses_are_counted() -> None:
    machine = Machine()
    shard, one, _ = machine.running()
    lease = machine.work(one).leases[0]
    machine.reach(one, lease.id, 8)
    machine.request(messages.MemberDied(role=Role.SHARD, index=0, pid=2, exit_code=-9))
    machine.request(messages.MemberDied(role=Role.REPLICA, index=0, pid=2, exit_code=-9))
    assert len(machine.state.fencings) == 1
    sender = SenderPosition(index=0, incarnation=1, position=Position())
    restored = fields.Restored(
        initialised=True,
        checkpoint=1,
        version=0,
        senders=(fields.RestoredSender(sender=sender, acknowledged=3, lost=3),),
    )
    new = machine.member(Role.SHARD, 0, "s0-again", restored=restored)
    assert new.incarnation == shard.incarnation + 1
    assert machine.state.fencings == []
    assert machine.state.data.samples_done == 8
    assert _summary(machine)["updatesLostBySender"] == {"replica-0": 3}
    assert _summary(machine)["restarts"]["shard"] == 1


def _restored(lost: int, acknowledged: int = 9) -> fields.Restored:
    sender = SenderPosition(index=0, incarnation=1, position=Position())
    known = fields.RestoredSender(sender=sender, acknowledged=acknowledged, lost=lost)
    return fields.Restored(initialised=True, checkpoint=1, version=0, senders=(known,))


def test_a_shard_that_is_killed_again_as_it_comes_back_reports_its_losses_once() -> None:
    machine = Machine()
    machine.running()
    for restart in range(3):
        machine.member(Role.SHARD, 0, f"s0-{restart}", restored=_restored(lost=3))
        assert _summary(machine)["updatesLost"] == 3
    machine.member(Role.SHARD, 0, "s0-later", restored=_restored(lost=5))
    assert _summary(machine)["updatesLostBySender"] == {"replica-0": 5}
    machine.member(Role.SHARD, 0, "s0-without-its-file", restored=_restored(0, acknowledged=0))
    assert _summary(machine)["updatesLost"] == 5


def test_an_update_that_comes_again_is_taken_out_of_the_lost_ones() -> None:
    machine = Machine()
    machine.running()
    shard = machine.member(Role.SHARD, 0, "s0-again", restored=_restored(lost=3))
    again = ShardReport(lost=(LostUpdates(index=0, incarnation=1, lost=2),))
    for _ in range(2):
        machine.heartbeat(shard, again)
        assert _summary(machine)["updatesLostBySender"] == {"replica-0": 2}
    machine.heartbeat(shard, ShardReport(lost=(LostUpdates(index=0, incarnation=1, lost=0),)))
    assert _summary(machine)["updatesLostBySender"] == {}


def test_a_shard_that_dies_without_a_checkpoint_gets_an_upload_again() -> None:
    machine = Machine()
    machine.running()
    machine.request(messages.MemberDied(role=Role.SHARD, index=0, pid=2, exit_code=-9))
    empty = fields.Restored(initialised=False, checkpoint=None, version=0)
    machine.member(Role.SHARD, 0, "s0-again", restored=empty)
    kinds = [issued.order.kind for issued in machine.state.orders.values()]
    assert kinds == ["configure"]
    machine.obey()
    assert machine.state.shards[0].initialised


def test_who_may_wait_for_an_empty_shard_is_not_asked_for_its_values() -> None:
    machine = Machine()
    shard, one, two = machine.running()
    assert machine.work(one).leases
    assert machine.work(two).leases
    machine.muted |= {one, two}
    machine.request(messages.MemberDied(role=Role.SHARD, index=0, pid=2, exit_code=-9))
    empty = fields.Restored(initialised=False, checkpoint=None, version=0)
    new_shard = machine.member(Role.SHARD, 0, "s0-again", restored=empty)
    machine.obey()
    assert not machine.state.replicas[0].live
    assert machine.state.replicas[1].live
    assert not any(isinstance(o.order, commands.Upload) for o in machine.state.orders.values())

    machine.member(Role.REPLICA, 0, "r0-again")
    machine.obey()
    assert machine.state.shards[0].initialised
    assert (machine.state.shards[0].member, shard.incarnation) == (new_shard, 1)


def test_who_owes_an_empty_shard_its_values_gets_no_work_before_it_has_sent_them() -> None:
    """A push to the empty shard would be on its way before the values, and wait for them."""
    machine = Machine()
    _, one, two = machine.running()
    machine.muted |= {one, two}
    machine.request(messages.MemberDied(role=Role.SHARD, index=0, pid=2, exit_code=-9))
    empty = fields.Restored(initialised=False, checkpoint=None, version=0)
    machine.member(Role.SHARD, 0, "s0-again", restored=empty)
    machine.obey()
    assert [issued.member for issued in machine.state.orders.values()] == [one]

    owing = machine.work(one)
    assert (owing.leases, owing.wait) == ((), True)

    machine.muted.clear()
    machine.obey()
    assert machine.work(one).leases


def _evaluating() -> tuple[Machine, MemberId, MemberId, MemberId]:
    """A shard and two replicas; the second has done an epoch, which the first was told to measure.

    The replicas answer no commands.
    """
    machine = Machine(stop=Stop(epochs=9))
    shard, one, two = machine.running()
    machine.muted |= {one, two}
    for _ in range(3):
        machine.process(two)
    return machine, shard, one, two


def test_who_evaluates_is_not_asked_for_an_empty_shards_values() -> None:
    machine, _, one, two = _evaluating()
    assert [o.member for o in machine.state.orders.values()] == [one], "one evaluates"
    assert machine.next_work(two).leases
    machine.request(messages.MemberDied(role=Role.SHARD, index=0, pid=2, exit_code=-9))
    empty = fields.Restored(initialised=False, checkpoint=None, version=0)
    machine.member(Role.SHARD, 0, "s0-again", restored=empty)
    machine.obey()
    assert not machine.state.replicas[0].live


def test_without_durability_the_job_fails_with_its_shard() -> None:
    machine = Machine(durability=Durability.NONE)
    machine.running()
    assert machine.ledgers == {}
    machine.request(messages.MemberDied(role=Role.SHARD, index=0, pid=2, exit_code=-9))
    assert machine.state.reason == FailureReason.SHARD_LOST
    assert "shard-0 (pid 2) ended with code -9; nothing of it is on disk" in machine.state.message


def test_without_durability_a_shard_lost_during_the_export_leaves_the_last_checkpoint() -> None:
    machine = Machine(durability=Durability.NONE)
    _, one, two = machine.running()
    machine.muted |= {one, two}
    for replica in (one, two):
        machine.process_everything(replica)
    while machine.state.phase is not Phase.EXPORTING:
        issued = next(iter(machine.state.orders.values()))
        result = machine._result(issued.order, issued.member)
        machine.request(messages.CommandDone(member=issued.member, order=issued.id, result=result))
    machine.request(messages.MemberDied(role=Role.SHARD, index=0, pid=2, exit_code=-9))
    assert machine.state.reason == FailureReason.SHARD_LOST
    checkpoint = machine.state.last_checkpoint
    assert (
        f"last checkpoint is {checkpoint}: go on with `disttrain resume`" in machine.state.message
    )


def test_without_durability_a_shard_lost_before_training_is_named_as_the_reason() -> None:
    machine = Machine(durability=Durability.NONE)
    machine.member(Role.SHARD, 0, "s0")
    died = messages.MemberDied(role=Role.SHARD, index=0, pid=2, exit_code=-9, final=True)
    machine.request(died)
    assert machine.state.reason == FailureReason.SHARD_LOST


def test_more_non_finite_gradients_than_allowed_fail_the_job_by_name() -> None:
    machine = Machine(max_non_finite=3, rate_field="optimizer.arguments.lr")
    _, one, two = machine.running()
    machine.heartbeat(one, ReplicaReport(non_finite=2))
    machine.heartbeat(two, ReplicaReport(non_finite=1))
    assert machine.phase() is Phase.RUNNING
    machine.heartbeat(two, ReplicaReport(non_finite=2))
    assert (machine.state.phase, machine.state.reason) == (Phase.FAILED, FailureReason.DIVERGED)
    assert "replica-0: 2, replica-1: 2" in machine.state.message
    assert machine.state.message.endswith("Try a lower optimizer.arguments.lr or clipNorm.")
    assert _summary(machine)["nonFiniteGradients"] == 4


def test_non_finite_gradients_of_the_dead_still_count() -> None:
    machine = Machine()
    _, one, _ = machine.running()
    machine.heartbeat(one, ReplicaReport(non_finite=2))
    machine.request(messages.MemberDied(role=Role.REPLICA, index=0, pid=2, exit_code=-9))
    again = machine.member(Role.REPLICA, 0, "r0-again")
    machine.heartbeat(again, ReplicaReport(non_finite=1))
    assert _summary(machine)["nonFiniteGradientsByReplica"] == {"replica-0": 3}


def test_a_target_metric_ends_the_job_at_the_evaluation_that_meets_it() -> None:
    target = TargetMetric(name="accuracy", at_least=0.5)
    machine = Machine(stop=Stop(epochs=50, target_metric=target))
    _, one, _ = machine.running()
    machine.process_everything(one)
    machine.obey()
    assert (machine.state.phase, machine.state.reason) == (Phase.COMPLETE, "TargetMetric")
    assert machine.state.data.epochs_done < 5


def test_leases_given_back_at_the_end_of_a_job_are_not_counted_as_requeued() -> None:
    machine = Machine(stop=Stop(steps=1))
    _, one, _ = machine.running()
    lease = machine.work(one).leases[0]
    machine.reach(one, lease.id, 4)
    machine.obey()
    summary = _summary(machine)
    assert (summary["phase"], summary["reason"]) == ("Complete", "Steps")
    assert (summary["portionsRequeued"], summary["samplesRequeued"]) == (0, 0)


def test_leases_of_a_replica_that_leaves_early_are_counted_as_requeued() -> None:
    machine = Machine()
    _, one, _ = machine.running()
    lease = machine.work(one).leases[0]
    machine.reach(one, lease.id, 4)
    leave = messages.Leave(member=one, reason="SIGTERM", progress=machine.positions[one])
    machine.request(leave)
    summary = _summary(machine)
    assert (summary["portionsRequeued"], summary["samplesRequeued"]) == (2, 12)


def test_a_failed_evaluation_fails_the_job_with_its_message() -> None:
    machine, shard, _, _ = _evaluating()
    found = [o for o in machine.state.orders.values() if isinstance(o.order, commands.Evaluate)]
    failed = commands.CommandFailed(message="measure() raised")
    machine.request(messages.CommandDone(member=found[0].member, order=found[0].id, result=failed))
    assert machine.state.reason == FailureReason.EVALUATION_FAILED
    assert "measure() raised" in machine.state.message
    assert shard in [issued.member for issued in machine.state.orders.values()]


def test_a_failed_checkpoint_is_counted_and_tried_again() -> None:
    machine = Machine(checkpoint_seconds=5.0)
    shard, one, two = machine.running()
    assert machine.state.last_checkpoint == 1
    machine.muted.add(shard)
    machine.tick(5.0)
    found = [o for o in machine.state.orders.values() if isinstance(o.order, commands.Checkpoint)]
    failed = commands.CommandFailed(message="No space left on device")
    machine.request(messages.CommandDone(member=shard, order=found[0].id, result=failed))
    assert _summary(machine)["checkpointFailures"] == 1
    machine.muted.clear()
    for member in (one, two):
        machine.heartbeat(member)
    machine.tick(5.0)
    machine.obey()
    assert machine.state.last_checkpoint == 3


@pytest.mark.parametrize(
    ("every_seconds", "hangs_after_seconds"), [(30.0, 3600.0), (600.0, 6000.0)]
)
def test_a_checkpoint_that_is_never_written_is_given_up_and_another_one_tried(
    every_seconds: float, hangs_after_seconds: float
) -> None:
    machine = Machine(checkpoint_seconds=every_seconds)
    members = machine.running()
    machine.muted.add(members[0])

    def pass_by(seconds: float) -> None:
        for _ in range(round(seconds / 10)):
            for member in members:
                machine.heartbeat(member)
            machine.tick(10.0)

    pass_by(every_seconds)
    hanging = machine.state.checkpoint
    assert hanging is not None
    pass_by(hangs_after_seconds - 10.0)
    assert machine.state.checkpoint == hanging
    pass_by(10.0)
    assert _summary(machine)["checkpointFailures"] == 1
    assert str(round(hangs_after_seconds)) in (machine.state.checkpoint_failure or "")
    machine.muted.clear()
    pass_by(10.0)
    machine.obey()
    assert machine.state.last_checkpoint == hanging.number + 1


def test_a_stop_drains_and_checkpoints_however_often_it_is_said_unless_it_is_urgent() -> None:
    machine = Machine()
    shard, *_ = machine.running()
    for _ in range(3):
        machine.request(messages.Stop(reason="Ctrl-C"))
        assert machine.phase() is Phase.DRAINING
    machine.muted.add(shard)
    machine.obey()
    assert machine.phase() is Phase.CHECKPOINTING
    machine.request(messages.Stop(reason="no patience", at_once=True))
    assert (machine.phase(), machine.state.message) == (Phase.STOPPED, "no patience")


@pytest.mark.parametrize(
    ("stop", "phase", "reason"),
    [
        (True, Phase.STOPPED, "Stopped"),
        (False, Phase.FAILED, FailureReason.CHECKPOINT_FAILED),
    ],
)
def test_without_a_last_checkpoint_a_stop_is_a_stop_and_a_result_is_missing(
    *, stop: bool, phase: Phase, reason: str
) -> None:
    machine = Machine()
    shard, one, _ = machine.running()
    machine.muted.add(shard)
    if stop:
        machine.request(messages.Stop(reason="Ctrl-C"))
    else:
        machine.process_everything(one)
    machine.obey()
    while not machine.phase().ended:
        assert machine.phase() is Phase.CHECKPOINTING
        for issued in list(machine.state.orders.values()):
            failed = commands.CommandFailed(message="No space left on device")
            done = messages.CommandDone(member=shard, order=issued.id, result=failed)
            machine.request(done)
        machine.tick(1.0)
    assert (machine.phase(), machine.state.reason) == (phase, reason)
    assert "failed 5 times, at last since No space left on device" in machine.state.message


def test_a_spent_restart_budget_fails_the_job() -> None:
    machine = Machine()
    machine.running()
    died = messages.MemberDied(role=Role.REPLICA, index=0, pid=2, exit_code=1, final=True)
    machine.request(died)
    assert machine.state.reason == FailureReason.TOO_MANY_RESTARTS


def test_a_resume_repeats_what_the_shards_hold_beyond_the_ledger_and_counts_it() -> None:
    machine = Machine(checkpoint_seconds=5.0)
    _, one, _ = machine.running()
    leases = machine.work(one).leases
    machine.reach(one, leases[0].id, 8)
    machine.tick(5.0)
    machine.obey()
    ledger = state.from_json(machine.ledgers[2])
    again = Machine(state=resume.from_ledger(ledger, "checkpoints/00000002", shards=1))
    ahead = SenderPosition(
        index=0, incarnation=1, position=Position(lease=leases[1].id, offset=4), samples=12
    )
    late = SenderPosition(index=0, incarnation=2, position=Position(lease=9, offset=4), samples=4)
    restored = fields.Restored(
        initialised=True,
        checkpoint=2,
        version=3,
        senders=tuple(
            fields.RestoredSender(sender=sender, acknowledged=3, lost=0) for sender in (ahead, late)
        ),
    )
    again.member(Role.SHARD, 0, "s", restored=restored)
    new = again.member(Role.REPLICA, 0, "r")
    assert new.incarnation > 1000
    again.obey()
    assert (again.state.phase, again.state.data.samples_repeated) == (Phase.RUNNING, 4 + 4)
    again.process_everything(new)
    again.obey()
    summary = _summary(again)
    assert (summary["phase"], summary["samples"], summary["epochs"]) == ("Complete", 64, 2)
    assert summary["restarts"] == {"coordinator": 0, "shard": 0, "replica": 0}


def test_status_names_members_speed_and_limit() -> None:
    machine = Machine()
    shard, one, _ = machine.running()
    machine.tick(1.0)
    report = ReplicaReport(compute_seconds=7.0, data_seconds=3.0, loss_sum=3.0, loss_steps=2)
    machine.heartbeat(one, report)
    machine.heartbeat(shard, ShardReport(version=5, staleness=(3, 1)))
    machine.tick(1.0)
    reply = machine.request(messages.Status())
    assert isinstance(reply, messages.StatusReply)
    found = reply.status
    assert [member["name"] for member in found["members"]] == ["shard-0", "replica-0", "replica-1"]
    assert found["training"]["loss"] == 1.5
    assert found["timeShares"]["computing"] == 0.7
    assert found["limit"].startswith("Data")
    assert found["staleness"]["histogram"] == {"0": 3, "1": 1}
    assert (found["staleness"]["p50"], found["staleness"]["p99"]) == (0, 1)
    assert payloads.parse_reply(payloads.encode_reply(reply)) == reply
