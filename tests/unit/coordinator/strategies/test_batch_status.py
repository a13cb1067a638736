"""What is told of a batch method."""

from builders.batch_machines import RULES, BatchMachine
from disttrain.coordinator.phases import IncarnationState
from disttrain.coordinator.strategies.batch import status as batch_status


def _said(**changes: object) -> str | None:
    machine = BatchMachine(rules=RULES.model_copy(update=changes))
    machine.running()
    found = batch_status.batch(machine.state)
    assert found is not None
    warning: str | None = found["warning"]
    return warning


def test_a_batch_with_fewer_groups_than_replicas_is_told() -> None:
    warning = _said(push_every_portions=4)
    assert warning is not None
    assert "makes 1 groups of portions for 2 replicas, so that 1 of them have nothing" in warning
    assert "spec.strategy.sandblaster" in warning


def test_a_batch_with_as_many_groups_as_replicas_is_fine() -> None:
    assert _said() is None


def test_replicas_that_are_gone_need_no_groups() -> None:
    machine = BatchMachine(rules=RULES.model_copy(update={"push_every_portions": 4}))
    machine.running()
    machine.state.replicas[1].state = IncarnationState.LEFT
    found = batch_status.batch(machine.state)
    assert found is not None
    assert found["warning"] is None


def test_nothing_is_told_before_it_begins() -> None:
    assert batch_status.batch(BatchMachine().state) is None
