"""Until it is saved, it is said that what was trained lately is not."""

from typing import Any

from builders.machines import Machine
from disttrain.coordinator.journal import job_entries
from disttrain.coordinator.phases import Phase
from disttrain.coordinator.status import sections, status

FULL = "checkpoints/.staging-00000002/shard-0 could not be written: No space left on device"


def told(machine: Machine) -> dict[str, Any]:
    found = machine.coordinator
    return status.status(found.state, found.stages, found.watch, machine.now)


def ended(machine: Machine, number: int, *, committed: bool) -> None:
    why = "" if committed else FULL
    entry = job_entries.CheckpointEnded(number=number, committed=committed, message=why)
    entry.apply(machine.state)


def test_a_failed_checkpoint_is_warned_of_until_one_is_committed() -> None:
    machine = Machine()
    machine.running()
    machine.state.last_checkpoint = None
    ended(machine, 1, committed=False)
    assert told(machine)["training"]["warning"] == f"nothing is saved yet: {FULL}"
    ended(machine, 2, committed=True)
    assert "warning" not in told(machine)["training"]
    ended(machine, 3, committed=False)
    warning = f"nothing since checkpoint 2 is saved: {FULL}"
    assert told(machine)["training"]["warning"] == warning
    found = machine.coordinator
    wanted = sections.of_object(found.state, found.stages, found.watch, machine.now)
    assert wanted["training"]["warning"] == warning


def test_a_job_that_has_ended_says_so_in_its_message_only() -> None:
    machine = Machine()
    machine.running()
    ended(machine, 1, committed=False)
    machine.state.phase = Phase.FAILED
    assert "warning" not in told(machine)["training"]
