"""What follows from the starts and ends of processes."""

import signal

from builders.jobs import a_job
from disttrain.launch.exit_code import ExitCode
from disttrain.launcher.restart_policy import Exit, GiveUpReason, Restart
from disttrain.launcher.supervision import (
    POSTPONED_SECONDS,
    Phase,
    State,
    Supervision,
)

KILLED = Exit(-signal.SIGKILL)
NAMES = ("coordinator", "shard-0", "replica-0")


def a_supervision(coordinator_restarts: int = 10) -> Supervision:
    budget = f"spec.failurePolicy.maxRestarts.coordinator={coordinator_restarts}"
    return Supervision(NAMES, a_job(budget).spec)


def running() -> Supervision:
    supervision = a_supervision()
    supervision.due(0.0, lambda _: True)
    for pid, name in enumerate(NAMES, start=100):
        supervision.started(name, pid)
    return supervision


def test_everything_is_due_at_first_and_told_once() -> None:
    supervision = a_supervision()
    assert [each.name for each in supervision.due(0.0, lambda _: True)] == list(NAMES)
    assert supervision.due(0.0, lambda _: True) == []


def test_what_cannot_start_yet_stays_due() -> None:
    supervision = a_supervision()
    supervision.due(0.0, lambda name: name != "replica-0")
    assert supervision.is_any_due(0.0)
    assert [each.name for each in supervision.due(1.0, lambda _: True)] == ["replica-0"]
    assert not supervision.is_any_due(1.0)


def test_a_killed_process_is_due_again_after_its_wait() -> None:
    supervision = running()
    assert supervision.ended("shard-0", KILLED, now=10.0) == Restart(0.5, 1)
    assert supervision.next_due() == 10.5
    assert supervision.due(10.4, lambda _: True) == []
    (process,) = supervision.due(10.5, lambda _: True)
    assert (process.name, process.restarts) == ("shard-0", 1)


def test_what_cannot_be_started_is_tried_again_and_counted_once() -> None:
    supervision = running()
    supervision.ended("shard-0", KILLED, now=10.0)
    for attempt in range(3):
        now = 10.5 + attempt * POSTPONED_SECONDS
        (process,) = supervision.due(now, lambda _: True)
        assert process.restarts == 1
        assert supervision.postponed("shard-0", now) == (attempt == 0)
        assert (process.state, process.restarts) == (State.WAITING, 0)
        assert supervision.due(now + POSTPONED_SECONDS - 0.1, lambda _: True) == []
    supervision.due(99.0, lambda _: True)
    supervision.started("shard-0", 200)
    assert process.restarts == 1
    assert supervision.postponed("shard-0", 99.0)


def test_a_first_start_that_is_tried_again_is_no_restart() -> None:
    supervision = a_supervision()
    supervision.due(0.0, lambda _: True)
    assert supervision.postponed("replica-0", 0.0)
    (process,) = supervision.due(POSTPONED_SECONDS, lambda _: True)
    assert (process.name, process.restarts) == ("replica-0", 0)


def test_the_coordinators_decision_ends_everything() -> None:
    supervision = running()
    supervision.ended("replica-0", KILLED, now=1.0)
    assert supervision.processes["replica-0"].restarts == 0
    assert supervision.ended("coordinator", Exit(1), now=1.1) is None
    assert supervision.phase is Phase.ENDING
    assert supervision.due(99.0, lambda _: True) == []
    assert [each.name for each in supervision.running] == ["shard-0"]
    assert supervision.ended("shard-0", KILLED, now=1.2) is None
    assert supervision.running == []


def test_a_coordinator_beyond_its_budget_ends_everything() -> None:
    supervision = a_supervision(coordinator_restarts=0)
    supervision.due(0.0, lambda _: True)
    assert isinstance(supervision.ended("coordinator", KILLED, now=1.0), GiveUpReason)
    assert supervision.phase is Phase.ENDING


def test_a_crashed_coordinator_starts_again_while_the_job_is_being_stopped() -> None:
    supervision = running()
    supervision.interrupted()
    assert supervision.phase is Phase.STOPPING
    assert isinstance(supervision.ended("coordinator", KILLED, now=1.0), Restart)
    assert supervision.processes["coordinator"].state is State.WAITING


def test_once_the_job_has_ended_only_its_coordinator_is_started_again() -> None:
    supervision = running()
    supervision.ended("shard-0", Exit(0), now=1.0)
    supervision.closes()
    assert supervision.phase is Phase.CLOSING
    assert supervision.ended("replica-0", KILLED, now=1.1) is None
    assert isinstance(supervision.ended("coordinator", KILLED, now=1.2), Restart)
    assert [each.name for each in supervision.due(99.0, lambda _: True)] == ["coordinator"]


def test_after_an_error_that_no_restart_heals_no_member_is_started_again() -> None:
    supervision = running()
    supervision.ended("shard-0", Exit(0), now=1.0)
    assert isinstance(
        supervision.ended("replica-0", Exit(ExitCode.FINAL_ERROR), now=1.1), GiveUpReason
    )
    assert supervision.phase is Phase.CLOSING
    assert supervision.due(99.0, lambda _: True) == []


def test_nobody_waits_at_the_end_for_what_has_not_begun() -> None:
    supervision = a_supervision()
    supervision.due(0.0, lambda _: True)
    supervision.started("coordinator", 100)
    supervision.interrupted()
    supervision.ended("coordinator", Exit(ExitCode.INTERRUPTED), now=1.0)
    assert supervision.phase is Phase.ENDING
    assert supervision.running == []
