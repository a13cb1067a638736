"""Who may not join: a replica with other data, and anybody once the job is over."""

from builders.machines import Machine
from disttrain.coordinator.journal.state import Phase
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.messages import FailureReason, RefusalReason
from disttrain.transport.header import Role


def test_a_replica_that_sees_other_data_fails_the_job_with_both_numbers() -> None:
    machine = Machine()
    machine.running()

    refused = machine.join(Role.REPLICA, 1, "other data", samples=64)

    assert isinstance(refused, messages.Refused)
    assert refused.reason is RefusalReason.WRONG_DATA
    assert "64 training samples, the job has 32" in refused.message
    assert machine.phase() is Phase.FAILED
    assert machine.state.reason == FailureReason.WRONG_DATA


def test_nobody_joins_a_job_that_is_over() -> None:
    machine = Machine()
    _, one, _ = machine.running()
    machine.process_everything(one)
    machine.obey()
    assert machine.phase() is Phase.COMPLETE
    lives = dict(machine.state.replicas)

    for role in (Role.REPLICA, Role.SHARD):
        refused = machine.join(role, 0, "late")
        assert isinstance(refused, messages.Refused)
        assert refused.reason is RefusalReason.ENDED
    assert machine.state.replicas == lives
