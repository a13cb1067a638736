"""What the coordinator decides about a batch method: when commands go out, whose results count."""

import math
from dataclasses import replace

import numpy as np
import pytest

from builders.batch_machines import RULES, BatchMachine, batch_method
from disttrain.coordinator.phases import FailureReason, Phase
from disttrain.coordinator.protocol import commands, messages, payloads
from disttrain.coordinator.protocol.fields import NO_PROGRESS, MemberId, Progress
from disttrain.coordinator.strategies import sandblaster
from disttrain.coordinator.strategies.batch import status as batch_status
from disttrain.job.roles import Durability
from disttrain.sandblaster.batch.driver import Stage
from disttrain.sandblaster.batch.programs import Program
from disttrain.sandblaster.operations import PARAMETERS
from disttrain.transport.header import Role


def test_no_command_is_given_before_there_is_a_checkpoint() -> None:
    machine = BatchMachine()
    shard = machine.member(Role.SHARD, 0, "s0")
    machine.member(Role.REPLICA, 0, "r0")
    for _ in range(3):
        for issued in list(machine.state.orders.values()):
            if not isinstance(issued.order, commands.Checkpoint):
                done = commands.Done()
                machine.request(
                    messages.CommandDone(member=issued.member, order=issued.id, result=done)
                )
    machine.tick(1.0)

    kinds = {type(one.order) for one in machine.state.orders.values() if one.member == shard}
    assert kinds == {commands.Checkpoint}
    machine.obey()
    assert machine.batch.course.stage is Stage.COMPUTING
    assert machine.batch.cut_number == 1


class SlowDisk(BatchMachine):
    """Each checkpoint takes longer than until the next one is due."""

    def _result(self, command: commands.Command, member: MemberId) -> commands.Result:
        if isinstance(command, commands.Checkpoint):
            self.now += 11.0
        return super()._result(command, member)


def test_between_two_checkpoints_something_is_done_however_long_they_take() -> None:
    machine = SlowDisk(checkpoint_seconds=10.0)
    _, first, second = machine.running()
    for _ in range(3):
        assert machine.batch.course.stage is Stage.COMPUTING
        machine.evaluate(first, second)

    assert machine.batch.cut_number == 4
    assert machine.batch.course.method.progress.evaluations == 3


def test_a_job_that_goes_on_with_another_manifest_goes_by_its_rules() -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    machine.evaluate(first, second)
    rules = RULES.model_copy(update={"portion_size": 4})

    machine.coordinator.stages = (batch_method(rules),)
    machine.tick(1.0)

    assert machine.batch.rules == rules
    assert machine.state.data.portion_size == 4
    assert machine.batch.groups == 4
    (change,) = machine.batch.changes
    assert "portionSize was 8 and is 4" in change


def test_a_job_runs_until_the_method_has_converged() -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    for _ in range(20):
        machine.evaluate(first, second)
        machine.tick(1.0)
        machine.obey()

    assert machine.phase() is Phase.COMPLETE
    assert machine.state.reason == "Converged"
    assert "; the gradient's largest element is " in machine.state.message
    assert np.abs(machine.shard.vectors[PARAMETERS]).max() <= 1e-5
    evaluations = machine.batch.course.method.progress.evaluations
    assert machine.state.data.epochs_done == evaluations
    assert machine.state.samples == 32 * evaluations


def test_a_group_is_given_again_until_its_replica_says_that_it_has_it() -> None:
    machine = BatchMachine()
    _, first, _ = machine.running()
    (lease,) = machine.ask(first)

    assert machine.ask(first) == (lease,)
    (other,) = machine.ask(first, lease.attempt)
    assert (lease.group, other.group) == (0, 1)
    assert (lease.portions, other.portions) == ((0, 2), (2, 4))
    assert machine.ask(first, lease.attempt, other.attempt) == ()


def test_who_is_idle_gets_a_copy_and_the_first_result_counts() -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    (lease,) = machine.ask(first)
    machine.do(first, machine.ask(first, lease.attempt)[0])
    (copy,) = machine.ask(second)
    assert copy.group == lease.group

    machine.do(second, copy)
    assert machine.batch.course.stage is Stage.MEASURING
    machine.do(first, lease)
    machine.obey()

    assert machine.batch.all_copies == 1
    assert machine.batch.course.method.progress.evaluations == 1


def test_nobody_can_say_that_anothers_attempt_is_done() -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    (lease,) = machine.ask(first)

    machine.say(second, lease, 1.0)

    assert machine.batch.course.evaluation.winners == {}


def test_the_group_of_a_silent_replica_goes_to_another() -> None:
    machine = BatchMachine(lease_seconds=5.0)
    shard, first, second = machine.running()
    (lease,) = machine.ask(first)
    for _ in range(2):
        machine.now += 3.0
        machine.heartbeat(second)
        machine.heartbeat(shard)
    machine.tick()

    assert [one.group for one in machine.ask(second)] == [lease.group]
    assert machine.batch.all_requeued == 1


def test_a_shard_that_is_out_of_step_makes_all_return_to_the_checkpoint() -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    before = machine.batch.course.evaluation.number
    machine.failing = commands.CommandFailed(message="lost", why=commands.WhyFailed.OUT_OF_STEP)
    machine.evaluate(first, second)

    assert machine.returned == [1]
    assert machine.batch.course.stage is Stage.COMPUTING
    assert machine.batch.course.order.number == 1
    assert machine.batch.course.evaluation.number > before
    assert machine.batch.returns == 1


def tick_later(machine: BatchMachine) -> None:
    """When a checkpoint may be due again."""
    machine.now += 11.0
    for member in (*machine.state.shards.values(), *machine.state.replicas.values()):
        machine.heartbeat(member.member)
    machine.tick()
    machine.obey()


def a_machine_with_two_checkpoints() -> tuple[BatchMachine, MemberId, MemberId]:
    """The second is of a later point than the first."""
    machine = BatchMachine(checkpoint_seconds=10.0)
    _, first, second = machine.running()
    tick_later(machine)
    machine.evaluate(first, second)
    assert machine.batch.cut_number == 2
    return machine, first, second


def test_all_return_to_the_checkpoint_before_a_damaged_one() -> None:
    machine, first, second = a_machine_with_two_checkpoints()
    machine.damaged = {2}
    machine.failing = commands.CommandFailed(message="lost", why=commands.WhyFailed.OUT_OF_STEP)
    machine.evaluate(first, second)

    assert machine.returned == [1]
    assert machine.batch.course.method.progress.evaluations == 0
    assert machine.state.totals.damaged_checkpoints == [2]
    assert machine.phase() is Phase.RUNNING


def test_without_a_whole_checkpoint_the_job_fails_with_the_reason() -> None:
    machine, first, second = a_machine_with_two_checkpoints()
    machine.damaged = {1, 2}
    machine.failing = commands.CommandFailed(message="lost", why=commands.WhyFailed.OUT_OF_STEP)
    machine.evaluate(first, second)

    assert machine.phase() is Phase.FAILED
    assert machine.state.reason == FailureReason.CHECKPOINT_DAMAGED
    assert "its hash is another one" in machine.state.message


def test_what_was_computed_of_an_evaluation_is_counted_when_it_is_dropped() -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    (lease,) = machine.ask(first)
    machine.do(first, lease)
    machine.request(messages.MemberDied(role=Role.SHARD, index=0, pid=2, exit_code=-9))
    machine.member(Role.SHARD, 0, "s0 again")
    for _ in range(3):
        machine.tick(1.0)
        machine.obey()
    machine.evaluate(first, second)

    told = batch_status.batch(machine.state)
    assert told is not None
    assert (told["returns"], told["samplesDropped"]) == (1, 16)
    assert machine.state.data.samples_repeated == 0
    assert machine.state.samples == 32


def test_a_shard_that_cannot_do_a_command_fails_the_job() -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    machine.failing = commands.CommandFailed(message="no memory")
    machine.evaluate(first, second)

    assert machine.phase() is Phase.FAILED
    assert machine.state.message == "shard-0: no memory"


def test_without_checkpoints_a_lost_shard_fails_the_job() -> None:
    machine = BatchMachine(durability=Durability.NONE)
    machine.running()
    died = messages.MemberDied(role=Role.SHARD, index=0, pid=2, exit_code=-9)
    machine.request(died)

    assert machine.phase() is Phase.FAILED
    assert machine.state.reason == FailureReason.SHARD_LOST


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_at_the_first_point_fails_the_job(loss: float) -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    machine.evaluate(first, second, loss=loss)

    assert machine.phase() is Phase.FAILED
    assert machine.state.reason == FailureReason.DIVERGED
    assert "at the first point is not a finite number. See that the data" in machine.state.message


def test_a_loss_that_is_no_number_at_any_other_point_fails_the_job() -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    machine.evaluate(first, second)
    for _ in range(20):
        machine.evaluate(first, second, loss=math.inf)

    told = batch_status.batch(machine.state)
    assert told is not None
    assert (told["nonFinitePoints"], told["end"]) == (20, "no_minimum")
    assert machine.phase() is Phase.FAILED
    assert machine.state.reason == FailureReason.DIVERGED
    assert "not finite: 20). See that the loss has a lower bound" in machine.state.message


def test_a_stop_drops_the_evaluation_under_way() -> None:
    machine = BatchMachine()
    _, first, _ = machine.running()
    machine.ask(first)
    machine.request(messages.Stop(reason="enough"))
    machine.obey()

    assert machine.phase() is Phase.STOPPED
    assert machine.state.last_checkpoint == 2
    assert (batch_status.batch(machine.state) or {})["stage"] is Stage.DONE


def test_a_loop_with_its_own_data_is_refused() -> None:
    machine = BatchMachine()
    machine.running()
    reply = machine.request(
        messages.Join(
            role=Role.REPLICA,
            index=None,
            instance="loop",
            pid=1,
            layout=machine.state.layout,
        )
    )

    assert isinstance(reply, messages.Refused)
    assert reply.reason is messages.RefusalReason.NOT_ALLOWED


def test_batches_that_the_data_is_too_small_for_fail_the_job() -> None:
    machine = BatchMachine(rules=RULES.model_copy(update={"batch_size": 40}))
    machine.running()

    assert machine.phase() is Phase.FAILED
    assert machine.state.reason == FailureReason.BATCH_TOO_LARGE
    assert "makes 3 groups of portions, and the data has only 2" in machine.state.message


def test_more_groups_than_a_command_has_room_for_fail_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandblaster, "MOST_GROUPS", 1)
    machine = BatchMachine()
    machine.running()

    assert machine.phase() is Phase.FAILED
    assert machine.state.reason == FailureReason.BATCH_TOO_LARGE
    assert "2 groups of a batch, and 1 are the most" in machine.state.message


def test_a_command_with_as_many_groups_as_there_may_be_can_be_sent() -> None:
    last = 2**32 + sandblaster.MOST_GROUPS
    command = Program(
        coordinator=2,
        number=1,
        iteration=1,
        evaluation=1,
        commits=tuple(range(last - sandblaster.MOST_GROUPS, last)),
    )
    sent = payloads.encode_command(
        commands.NumberedCommand(id=1, order=commands.Perform(order=command))
    )
    assert len(sent) < payloads.LIMIT_BYTES


def test_batches_smaller_than_the_data_go_through_it() -> None:
    rules = RULES.model_copy(update={"batch_size": 18, "portion_size": 2, "push_every_portions": 3})
    machine = BatchMachine(rules=rules, portion_size=2, batch_size=2)
    _, first, second = machine.running()

    assert machine.batch.groups == 6
    assert machine.batch.course.evaluation.groups == 3
    for _ in range(3):
        machine.evaluate(first, second)
    machine.evaluate(first, second)

    assert machine.state.samples == machine.batch.course.samples > 0


def test_a_request_that_is_decided_again_says_nothing_new_of_its_sender() -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    old = messages.RequestWork(
        member=second, held=0, last_lease=0, progress=Progress(samples=16), attempts=()
    )
    machine.request(old)
    machine.request(replace(old, progress=Progress(samples=32)))
    heard, machine.now = machine.coordinator.watch.heard[second], machine.now + 7.0

    decision = machine.coordinator.request_again(old, machine.now)

    assert isinstance(decision.reply, messages.Work)
    assert decision.reply.groups
    assert machine.state.replicas[second.index].progress.samples == 32
    assert machine.coordinator.watch.heard[second] == heard
    assert first != second


def test_a_replica_that_is_gone_is_told_so_however_long_its_request_was_kept() -> None:
    machine = BatchMachine()
    _, first, _ = machine.running()
    request = messages.RequestWork(member=first, held=0, last_lease=0, progress=NO_PROGRESS)
    machine.request(messages.Leave(member=first, reason="SIGTERM"))

    decision = machine.coordinator.request_again(request, machine.now)

    assert isinstance(decision.reply, messages.Refused)
    assert decision.patience_seconds == 0
