"""Who evaluates, and what becomes of a target: one story per test."""

import math

import pytest

from builders.control_members import LAYOUT
from builders.machines import Machine
from disttrain.coordinator.journal import state
from disttrain.coordinator.journal.state import BestModel, Improvement, IssuedCommand
from disttrain.coordinator.phases import FailureReason, Phase
from disttrain.coordinator.protocol import commands, messages
from disttrain.coordinator.protocol.fields import MemberId, Position, Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.job.stop import Evaluation, Judged, Patience, Stop, TargetMetric
from disttrain.transport.header import Role

HALF = TargetMetric(name="accuracy", at_least=0.5)
MET, MISSED = {"accuracy": 5.0}, {"accuracy": 4.0}


def _evaluations(machine: Machine) -> list[IssuedCommand]:
    return [o for o in machine.state.orders.values() if isinstance(o.order, commands.Evaluate)]


def _epoch(machine: Machine, member: MemberId) -> None:
    """One replica does a pass over the data, and more if it gets more."""
    before = machine.state.data.epochs_done
    while machine.state.data.epochs_done == before:
        machine.process(member)


def _evaluating() -> tuple[Machine, tuple[MemberId, MemberId]]:
    """After an epoch; the command to evaluate is under way."""
    machine = Machine(stop=Stop(epochs=9, target_metric=HALF))
    _, one, two = machine.running()
    _epoch(machine, one)
    assert len(_evaluations(machine)) == 1
    return machine, (one, two)


def _die(machine: Machine, member: MemberId) -> None:
    pid = machine.state.replicas[member.index].pid
    machine.request(
        messages.MemberDied(role=Role.REPLICA, index=member.index, pid=pid, exit_code=-9)
    )


def test_an_evaluation_whose_replica_dies_is_done_by_another_one() -> None:
    machine, members = _evaluating()
    asked = _evaluations(machine)[0].member
    _die(machine, asked)
    (again,) = _evaluations(machine)
    assert again.member != asked
    assert again.member in members
    machine.evaluation = MISSED
    machine.obey()
    assert [found.measures for found in machine.state.evaluations] == [{"accuracy": 0.4}]
    assert _evaluations(machine) == [], "it is done once"


def test_an_evaluation_waits_for_a_replica_that_lives() -> None:
    machine, members = _evaluating()
    for member in members:
        _die(machine, member)
    assert _evaluations(machine) == []
    new = machine.member(Role.REPLICA, 0, "r0-again")
    machine.tick()
    (again,) = _evaluations(machine)
    assert again.member == new


def test_a_loop_with_its_own_data_is_not_asked_to_evaluate() -> None:
    machine = Machine(stop=Stop(epochs=9))
    _, one, two = machine.running()
    for member in (one, two):
        _die(machine, member)
    loop = machine.request(_loop())
    assert isinstance(loop, messages.Joined)
    machine.obey()
    again = machine.member(Role.REPLICA, 0, "r0-again")
    machine.obey()
    _epoch(machine, again)
    assert [found.member for found in _evaluations(machine)] == [again]


def _loop() -> messages.Join:
    return messages.Join(role=Role.REPLICA, index=9, instance="loop", pid=1, layout=LAYOUT)


def test_at_a_target_the_replicas_finish_what_they_hold_and_are_not_drained() -> None:
    machine, (one, two) = _evaluating()
    lease = machine.work(two).leases[0]
    machine.obey()
    assert (machine.phase(), machine.state.reason) == (Phase.DRAINING, "TargetMetric")
    assert machine.state.orders == {}
    reply = machine.work(one, last_lease=99)
    assert reply.wait, "there may be work again"
    assert reply.leases == ()
    machine.tick(1.0)
    assert machine.phase() is Phase.DRAINING
    for held in list(machine.state.data.held(two)):
        machine.reach(two, held.lease.id, held.lease.samples)
    assert lease.samples
    machine.obey()
    assert machine.phase() is Phase.COMPLETE


def test_an_answer_that_was_lost_before_a_target_was_met_is_given_again() -> None:
    machine, (_, two) = _evaluating()
    lost = machine.work(two).leases
    machine.obey()
    assert machine.phase() is Phase.DRAINING
    assert machine.work(two).leases == lost


def test_when_the_exported_model_misses_the_target_training_goes_on() -> None:
    machine, (one, _) = _evaluating()
    _close(machine, final=MISSED)
    assert (machine.phase(), machine.state.reason) == (Phase.RUNNING, "")
    told = machine.request(messages.Status())
    assert isinstance(told, messages.StatusReply)
    assert told.status["finalMeasures"] is None
    assert told.status["hasTarget"]
    samples = machine.state.samples

    machine.evaluation = MET
    _epoch(machine, one)
    machine.obey()

    assert (machine.phase(), machine.state.reason) == (Phase.COMPLETE, "TargetMetric")
    assert machine.state.samples > samples
    assert machine.evaluated == [None, "m", None, "m"]
    assert machine.state.evaluations[-1].final


def _close(machine: Machine, final: dict[str, float]) -> None:
    """The evaluation under way meets the target; that of the exported model gives `final`."""
    machine.evaluation = MET
    while machine.evaluated[-1:] != ["m"]:
        if machine.phase() is Phase.EXPORTING:
            machine.evaluation = final
        _obey_once(machine)


def _obey_once(machine: Machine) -> None:
    issued = next(iter(machine.state.orders.values()))
    result = machine._result(issued.order, issued.member)
    machine.request(messages.CommandDone(member=issued.member, order=issued.id, result=result))


def test_a_missed_target_is_not_tried_again_before_the_next_evaluation() -> None:
    machine, (one, _) = _evaluating()
    _close(machine, final=MISSED)
    machine.tick(1.0)
    assert _evaluations(machine) == []
    assert machine.next_work(one).leases


def test_a_job_whose_model_misses_its_target_at_another_limit_ends_with_that_one() -> None:
    machine = Machine(stop=Stop(epochs=9, seconds=60.0, target_metric=HALF))
    _, one, _ = machine.running()
    _epoch(machine, one)
    machine.now += 61.0
    machine.coordinator.watch.forgive(61.0, machine.now)
    _close(machine, final=MISSED)
    assert (machine.phase(), machine.state.reason) == (Phase.COMPLETE, "Seconds")


def test_the_evaluation_after_a_missed_target_is_of_the_new_model_whatever_ends_the_job() -> None:
    machine, (one, _) = _evaluating()
    _close(machine, final=MISSED)
    machine.evaluation = {"accuracy": 3.0}
    machine.process_everything(one)
    machine.obey()
    assert (machine.phase(), machine.state.reason) == (Phase.COMPLETE, "Epochs")
    assert machine.evaluated[-1] == "m"
    assert machine.state.evaluations[-1].measures == {"accuracy": 0.3}


def test_a_stop_while_the_exported_model_is_measured_is_kept_in_mind() -> None:
    machine, _ = _evaluating()
    machine.evaluation = MET
    while machine.phase() is not Phase.EVALUATING:
        _obey_once(machine)
    machine.request(messages.Stop(reason="Ctrl-C"))
    machine.evaluation = MISSED
    machine.obey()
    assert (machine.phase(), machine.state.reason) == (Phase.STOPPED, "Stopped")


def test_a_stop_before_the_exported_model_is_measured_stops() -> None:
    machine, (_, two) = _evaluating()
    assert machine.work(two).leases
    machine.obey()
    assert machine.phase() is Phase.DRAINING
    machine.request(messages.Stop(reason="Ctrl-C"))
    machine.obey()
    assert (machine.phase(), machine.state.reason) == (Phase.STOPPED, "Stopped")


@pytest.mark.parametrize(("final", "phase"), [(MET, Phase.COMPLETE), (MISSED, Phase.RUNNING)])
def test_a_loop_with_its_own_data_ends_when_the_target_seems_reached(
    final: dict[str, float], phase: Phase
) -> None:
    machine, _ = _evaluating()
    joined = machine.request(_loop())
    assert isinstance(joined, messages.Joined)
    _close(machine, final=final)
    assert machine.phase() is phase
    assert machine.state.replicas[9].drained
    if phase is Phase.RUNNING:
        assert isinstance(machine.heartbeat(joined.member, ReplicaReport()), messages.Refused)


def test_no_loop_joins_while_the_exported_model_is_measured() -> None:
    machine, (_, two) = _evaluating()
    assert machine.work(two).leases
    machine.obey()
    assert machine.phase() is Phase.DRAINING
    assert machine.coordinator.request(_loop(), machine.now).reply is None


def test_a_lease_that_was_lost_before_it_was_seen_is_shown_so_that_it_can_be_given_up() -> None:
    machine = Machine(lease_seconds=10.0, member_timeout_seconds=60.0)
    shard, one, two = machine.running()
    unseen = machine.work(one).leases
    machine.tick(11.0)
    machine.heartbeat(shard)
    machine.heartbeat(two)
    reply = machine.work(one)
    assert reply.lost_leases == tuple(lease.id for lease in unseen)
    assert reply.leases == unseen
    given_up = tuple(Position(lease=lease.id, offset=0) for lease in unseen)
    machine.positions[one] = Progress(abandoned=given_up)
    assert machine.work(one, last_lease=2).leases


@pytest.mark.parametrize(
    ("sums", "known"), [({"precision": 5.0, "error": 5.0}, "error, precision"), ({}, "nothing")]
)
def test_a_target_that_nothing_measures_fails_the_job(sums: dict[str, float], known: str) -> None:
    machine, _ = _evaluating()
    machine.evaluation = sums
    machine.obey()
    assert machine.state.phase is Phase.FAILED
    assert machine.state.reason == FailureReason.EVALUATION_FAILED
    assert f"is 'accuracy', and Task.measure() measures {known}: name" in machine.state.message


def test_an_evaluation_counts_the_samples_that_its_parameters_had_seen() -> None:
    machine, (_, two) = _evaluating()
    begun = machine.state.samples
    _epoch(machine, two)
    assert machine.state.samples > begun
    machine.obey()
    found = machine.state.evaluations[0]
    assert (found.samples, found.epoch) == (begun, 1)


def test_an_evaluation_that_another_replica_does_counts_anew() -> None:
    machine, (_, two) = _evaluating()
    asked, begun = _evaluations(machine)[0].member, machine.state.samples
    machine.process(two)
    _die(machine, asked)
    machine.obey()
    assert machine.state.evaluations[0].samples > begun


def test_patience_survives_the_coordinator() -> None:
    machine = Machine(stop=Stop(epochs=9, patience=Patience(evaluations=2, name="accuracy")))
    _, one, _ = machine.running()
    for expected in (0, 1):
        _epoch(machine, one)
        machine.obey()
        assert machine.state.improvement == Improvement(
            name="accuracy", best=0.5, evaluations=expected
        )
    again = state.from_json(state.to_json(machine.state))
    assert again.improvement == machine.state.improvement

    _epoch(machine, one)
    machine.obey()
    assert (machine.phase(), machine.state.reason) == (Phase.COMPLETE, "Patience")
    assert [found.final for found in machine.state.evaluations] == [False] * 3 + [True]


def test_patience_ends_a_job_whose_evaluations_give_no_number() -> None:
    machine = Machine(stop=Stop(patience=Patience(evaluations=2, name="accuracy")))
    machine.evaluation = {"accuracy": math.nan}
    _, one, _ = machine.running()
    for _ in range(2):
        _epoch(machine, one)
        machine.obey()
    assert (machine.phase(), machine.state.reason) == (Phase.COMPLETE, "Patience")
    known = Improvement(name="accuracy", best=None, evaluations=2)
    again = state.from_json(state.to_json(machine.state))
    assert machine.state.improvement == again.improvement == known


def test_patience_with_a_measure_that_is_none_fails_the_job() -> None:
    machine = Machine(stop=Stop(epochs=9, patience=Patience(evaluations=2, name="acc")))
    _, one, _ = machine.running()
    _epoch(machine, one)
    machine.obey()
    assert machine.phase() is Phase.FAILED
    assert machine.state.message == (
        "spec.stop.patience.name is 'acc', and Task.measure() measures accuracy: name one of its "
        "measures, else nothing ever improves"
    )


def test_the_best_model_is_what_a_replica_says_it_has_written() -> None:
    machine = Machine(stop=Stop(epochs=9), evaluation=Evaluation(keep_best=Judged(name="accuracy")))
    _, one, _ = machine.running()
    _epoch(machine, one)
    (asked,) = _evaluations(machine)
    assert isinstance(asked.order, commands.Evaluate)
    assert asked.order.keep == commands.KeepBest(
        file="b", name="accuracy", wants_lower=False, best=None
    )
    answer(machine, asked, value=0.5, kept=True)
    assert machine.state.best_model == BestModel(
        name="accuracy", value=0.5, samples=machine.state.evaluations[-1].samples
    )
    known = machine.state.best_model

    _epoch(machine, one)
    (asked,) = _evaluations(machine)
    assert isinstance(asked.order, commands.Evaluate)
    assert asked.order.keep is not None
    assert asked.order.keep.best == 0.5
    answer(machine, asked, value=0.25, kept=False)
    assert machine.state.best_model == known
    assert state.from_json(state.to_json(machine.state)).best_model == known


def test_the_exported_model_may_be_the_best_one() -> None:
    kept = Evaluation(keep_best=Judged(name="accuracy"))
    machine = Machine(stop=Stop(epochs=1), evaluation=kept)
    _, one, _ = machine.running()
    _epoch(machine, one)
    while not (asked := _evaluations(machine)):
        _obey_once(machine)
    assert isinstance(asked[0].order, commands.Evaluate)
    assert asked[0].order.model_file == "m"
    assert asked[0].order.keep == commands.KeepBest(
        file="b", name="accuracy", wants_lower=False, best=None
    )
    answer(machine, asked[0], value=0.5, kept=True)
    assert machine.phase() is Phase.COMPLETE
    assert machine.state.best_model == BestModel(
        name="accuracy", value=0.5, samples=machine.state.samples
    )


def test_a_best_model_by_the_loss_is_told_as_such() -> None:
    machine = Machine(stop=Stop(epochs=9), evaluation=Evaluation(keep_best=Judged()))
    _, one, _ = machine.running()
    _epoch(machine, one)
    (asked,) = _evaluations(machine)
    answer(machine, asked, value=0.5, kept=True)
    told = machine.request(messages.Status())
    assert isinstance(told, messages.StatusReply)
    samples = machine.state.evaluations[-1].samples
    assert told.status["bestModel"] == {"name": "loss", "value": 1.0, "samples": samples}


def answer(machine: Machine, asked: IssuedCommand, *, value: float, kept: bool) -> None:
    result = commands.Evaluated(sums={"accuracy": 8 * value}, samples=8, loss=1.0, kept=kept)
    machine.request(messages.CommandDone(member=asked.member, order=asked.id, result=result))
