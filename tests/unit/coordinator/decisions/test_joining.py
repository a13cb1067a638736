"""Who may not join: a replica with other data, and anybody once the job is over."""

import re
from typing import Any

import pytest

from builders.machines import Machine
from disttrain.coordinator.phases import FailureReason, Phase
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.messages import RefusalReason
from disttrain.coordinator.strategies.downpour import MOST_PORTIONS
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


@pytest.mark.parametrize("other", ["b", ""])
def test_a_replica_with_other_sources_of_as_many_samples_fails_the_job(other: str) -> None:
    machine = Machine()
    machine.member(Role.REPLICA, 0, "one", sources="a")
    machine.member(Role.REPLICA, 0, "alike", sources="a")

    refused = machine.join(Role.REPLICA, 1, "other sources", sources=other)

    assert isinstance(refused, messages.Refused)
    assert refused.reason is RefusalReason.WRONG_DATA
    assert "sources of training data have other names or numbers" in refused.message


@pytest.mark.parametrize("samples", [64, 3])
def test_of_other_data_it_is_not_said_what_does_not_fit_to_it(samples: int) -> None:
    machine = Machine(problem_with_data=lambda samples: None if samples == 32 else "no fit")
    machine.running()

    machine.join(Role.REPLICA, 1, "other data", samples=samples)

    assert machine.state.reason == FailureReason.WRONG_DATA
    assert f"{samples} training samples, the job has 32" in machine.state.message


def test_nobody_joins_a_job_that_is_over() -> None:
    machine = Machine()
    _, one, _ = machine.running()
    machine.process_everything(one)
    machine.obey()
    assert machine.phase() is Phase.COMPLETE
    groups = dict(machine.state.replicas)

    for role in (Role.REPLICA, Role.SHARD):
        refused = machine.join(role, 0, "late")
        assert isinstance(refused, messages.Refused)
        assert refused.reason is RefusalReason.ENDED
    assert machine.state.replicas == groups


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({}, r"^2147483648 training samples are 268435456 portions of 8, .* spec\.portionSize$"),
        ({"portion_size": None, "batch_size": 1}, r"33554432 portions of 64.* spec\.portionSize$"),
        (
            {"portion_size": None, "batch_size": 1, "portion_size_field": "spec.a"},
            r"larger spec\.a$",
        ),
    ],
)
def test_more_portions_than_there_can_be_an_account_of_fail_the_job(
    changes: dict[str, Any], remedy: str
) -> None:
    machine = Machine(most_portions=MOST_PORTIONS, **changes)

    refused = machine.join(Role.REPLICA, 0, "large", samples=2**31)

    assert isinstance(refused, messages.Refused)
    assert machine.state.reason == FailureReason.WRONG_DATA
    assert re.search(remedy, machine.state.message)


def test_a_strategy_that_the_data_is_too_small_for_fails_the_job() -> None:
    machine = Machine(problem_with_data=lambda samples: f"{samples} are too few")

    refused = machine.join(Role.REPLICA, 0, "small", samples=32)

    assert isinstance(refused, messages.Refused)
    assert machine.state.reason == FailureReason.WRONG_DATA
    assert machine.state.message == "32 are too few"
