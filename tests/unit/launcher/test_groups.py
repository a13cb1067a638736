"""Processes of one group end and start together, and count as one."""

import signal

import pytest

from builders.jobs import a_job
from disttrain.launch.exit_code import ExitCode
from disttrain.launcher.launcher import early_end
from disttrain.launcher.plan import process_names
from disttrain.launcher.restart_policy import Exit, GiveUpReason, Restart
from disttrain.launcher.supervision import GRACE_SECONDS, State, Supervision

KILLED = Exit(-signal.SIGKILL)
JOB = a_job("spec.replicas.partitions=2", "spec.replicas.count=2")
MEMBERS = ("replica-0-0", "replica-0-1")
PIDS = {name: pid for pid, name in enumerate(process_names(JOB), start=100)}


def running() -> Supervision:
    supervision = Supervision(process_names(JOB), JOB.spec)
    start(supervision, 0.0)
    return supervision


def start(supervision: Supervision, now: float) -> list[str]:
    due = [process.name for process in supervision.due(now, lambda _: True)]
    for name in due:
        supervision.started(name, PIDS[name])
    return due


def test_each_process_of_a_replica_has_a_name_of_its_own() -> None:
    expected = ["replica-0-0", "replica-0-1", "replica-1-0", "replica-1-1"]
    assert process_names(JOB)[-4:] == expected


@pytest.mark.parametrize("number", [0, 1])
def test_the_others_of_a_group_are_ended_and_all_start_again_as_one(number: int) -> None:
    supervision = running()
    ended, other = MEMBERS[number], MEMBERS[1 - number]

    assert supervision.ended(ended, KILLED, 10.0) == Restart(0.5, 1)
    assert list(supervision.to_stop(10.0)) == [(PIDS[other], signal.SIGTERM)]
    assert list(supervision.to_stop(10.0 + GRACE_SECONDS - 0.1)) == []
    assert start(supervision, 11.0) == [], "they start together"
    assert list(supervision.to_stop(10.0 + GRACE_SECONDS)) == [(PIDS[other], signal.SIGKILL)]
    assert list(supervision.to_stop(20.0)) == []

    assert supervision.ended(other, KILLED, 12.5) is None, "it is no failure of its own"
    assert start(supervision, 12.5) == list(MEMBERS)
    restarts = {name: process.restarts for name, process in supervision.processes.items()}
    assert {name: count for name, count in restarts.items() if count} == dict.fromkeys(MEMBERS, 1)


def test_the_back_off_grows_with_each_failure_of_the_group_whoever_it_was() -> None:
    supervision = running()
    for now, name, seconds in ((10.0, MEMBERS[0], 0.5), (20.0, MEMBERS[1], 1.0)):
        verdict = supervision.ended(name, KILLED, now)
        assert isinstance(verdict, Restart)
        assert verdict.delay_seconds == seconds
        (other,) = set(MEMBERS) - {name}
        supervision.ended(other, Exit(ExitCode.RESTART), now + 0.1)
        assert start(supervision, now + seconds - 0.1) == []
        assert start(supervision, now + seconds) == list(MEMBERS)


def test_a_process_that_is_only_on_its_way_is_ended_when_it_is_there() -> None:
    supervision = Supervision(process_names(JOB), JOB.spec)
    supervision.due(0.0, lambda _: True)
    supervision.started(MEMBERS[0], 7)
    supervision.ended(MEMBERS[0], KILLED, 1.0)
    assert list(supervision.to_stop(1.0)) == []
    supervision.started(MEMBERS[1], 8)
    assert list(supervision.to_stop(1.1)) == [(8, signal.SIGTERM)]
    assert supervision.processes[MEMBERS[1]].state is State.STOPPING


def test_an_error_that_no_restart_heals_counts_whoever_ended_first() -> None:
    supervision = running()
    supervision.ended(MEMBERS[1], Exit(ExitCode.RESTART), 1.0)
    verdict = supervision.ended(MEMBERS[0], Exit(ExitCode.FINAL_ERROR), 1.1)
    assert verdict is GiveUpReason.FINAL_ERROR
    assert start(supervision, 100.0) == []


def test_a_group_ends_until_its_last_process_has_ended() -> None:
    supervision = running()
    assert not supervision.is_ending("replica-0")
    supervision.ended(MEMBERS[1], KILLED, 1.0)
    assert supervision.is_ending("replica-0")
    assert not supervision.is_ending("replica-1")
    supervision.ended(MEMBERS[0], KILLED, 1.1)
    assert not supervision.is_ending("replica-0")


def test_who_was_ended_with_its_group_did_not_end_early() -> None:
    supervision = running()
    supervision.ended(MEMBERS[0], KILLED, 1.0)
    supervision.ended(MEMBERS[1], Exit(ExitCode.INTERRUPTED), 1.1)
    assert [early_end(supervision.processes[name]) for name in MEMBERS] == [None, None]


def test_at_the_end_of_the_job_no_group_starts_again() -> None:
    supervision = running()
    supervision.ended(MEMBERS[0], KILLED, 1.0)
    supervision.closes()
    supervision.ended(MEMBERS[1], KILLED, 1.1)
    assert start(supervision, 100.0) == []
