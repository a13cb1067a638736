"""What `disttrain inspect` says about the decisions of a batch method."""

import json

from builders.batch_machines import BatchMachine
from builders.machines import Machine
from disttrain.cli import checkpoints


def test_every_evaluation_has_a_line() -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    for _ in range(3):
        machine.evaluate(first, second)

    head, *rows = checkpoints.decision_rows(machine.state)

    assert head[0] == "evaluation"
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert rows[0][-1] == "begun"
    described = json.loads(checkpoints.with_decisions("{}", machine.state))
    assert len(described["sandblaster"]["decisions"]) == 3
    assert described["sandblaster"]["evaluations"] == 3


def test_other_strategies_have_none() -> None:
    machine = Machine()
    machine.running()

    assert checkpoints.decision_rows(machine.state) == []
    assert checkpoints.with_decisions("{}", machine.state) == "{}"
