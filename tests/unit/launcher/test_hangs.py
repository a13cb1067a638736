"""Which processes the launcher kills although they live."""

import pytest

from disttrain.job.names import Role
from disttrain.job.run_status import Member, RunStatus
from disttrain.launcher.hangs import (
    ANSWER_SECONDS,
    IDLE_SECONDS,
    START_SECONDS,
    Hang,
    Hangs,
    Owing,
)
from disttrain.launcher.supervision import Process, State

PATIENCE = 60.0
LOST = Hang("shard-1", 12, "silent for 60.0 s")
LATER = Member(name="shard-1", pid=99)
WORD = RunStatus(phase="Running", members=(Member(name="shard-1", pid=12), LATER))


def declared_dead(hang: Hang) -> RunStatus:
    """What the coordinator says of a member that it has given up."""
    dead = Member(name=hang.name, pid=hang.pid, state="dead", reason=hang.reason)
    return RunStatus(phase="Running", members=(dead, LATER))


SAID = declared_dead(LOST)


def processes(**changed: Process) -> list[Process]:
    """Those that run."""
    usual = [
        Process("coordinator", State.RUNNING, pid=10),
        Process("shard-1", State.RUNNING, pid=12),
    ]
    found = {each.name: each for each in (*usual, *changed.values())}
    return [each for each in found.values() if each.state is State.RUNNING]


def resting(pid: int) -> int:
    """Processor time of one that does nothing."""
    del pid
    return 7


def heard_once() -> Hangs:
    """The coordinator has said something at second 1."""
    hangs = Hangs(PATIENCE, resting)
    assert hangs.look(processes(), None, 0.0) == []
    assert hangs.look(processes(), WORD, 1.0) == []
    return hangs


def without_joining(hangs: Hangs, name: str, first: int, seconds: int) -> list[Hang]:
    """What is found in so many seconds in which the coordinator speaks, and not of this one."""
    there = processes(member=Process(name, State.RUNNING, pid=30))
    found = [hangs.look(there, WORD, float(first + second)) for second in range(seconds)]
    return [hang for hangs_found in found for hang in hangs_found]


def silent(hangs: Hangs, first: int, seconds: int, step: float = 0.5) -> list[Hang]:
    """What is found in so many seconds without a word."""
    looks = int(seconds / step)
    found = [hangs.look(processes(), None, first + step * look) for look in range(1, looks + 1)]
    return [hang for hangs_found in found for hang in hangs_found]


def test_a_member_that_was_declared_dead_and_lives_is_told_once() -> None:
    hangs = heard_once()
    assert hangs.look(processes(), SAID, 2.0) == [LOST]
    assert hangs.look(processes(), SAID, 3.0) == []


def test_a_member_whose_incarnation_was_declared_dead_lives_on_in_its_next() -> None:
    hangs = heard_once()
    later = processes(shard=Process("shard-1", State.RUNNING, pid=99))
    assert hangs.look(later, SAID, 2.0) == []


def test_a_later_incarnation_may_have_the_number_of_one_that_was_told() -> None:
    hangs = heard_once()
    assert hangs.look(processes(), SAID, 2.0) == [LOST]
    between = processes(shard=Process("shard-1", State.WAITING, pid=12))
    assert hangs.look(between, SAID, 3.0) == []

    assert hangs.look(processes(), SAID, 4.0) == [LOST]


def test_a_member_that_has_ended_and_one_of_somebody_else_are_left_alone() -> None:
    hangs = heard_once()
    waiting = processes(shard=Process("shard-1", State.WAITING, pid=12))
    assert hangs.look(waiting, SAID, 2.0) == []
    stranger = declared_dead(Hang("replica-700", 13, "silent"))
    assert hangs.look(processes(), stranger, 3.0) == []


def test_a_coordinator_that_says_nothing_any_more_is_told_after_the_patience() -> None:
    hangs = heard_once()
    assert silent(hangs, 1, 59) == []
    (found,) = silent(hangs, 60, 3)
    assert (found.name, found.pid, found.reason) == ("coordinator", 10, "silent for 60.0 s")


def test_each_word_of_the_coordinator_begins_the_patience_anew() -> None:
    hangs = heard_once()
    assert silent(hangs, 1, 50) == []
    assert hangs.look(processes(), WORD, 51.5) == []
    assert silent(hangs, 52, 50) == []


def test_a_coordinator_that_has_not_said_anything_yet_may_take_longer() -> None:
    hangs = Hangs(PATIENCE, resting)
    assert silent(hangs, 0, int(START_SECONDS)) == []
    assert len(silent(hangs, int(START_SECONDS), 2)) == 1


def test_the_next_incarnation_of_the_coordinator_begins_anew() -> None:
    hangs = heard_once()
    assert silent(hangs, 1, 59) == []
    away = processes(coordinator=Process("coordinator", State.WAITING, pid=10))
    assert hangs.look(away, None, 60.5) == []
    back = processes(coordinator=Process("coordinator", State.RUNNING, pid=20))
    assert all(hangs.look(back, None, 61.0 + second) == [] for second in range(90))


def test_time_for_which_the_launcher_itself_was_stopped_is_nobodys_silence() -> None:
    hangs = heard_once()
    assert hangs.look(processes(), None, 3600.0) == []
    assert silent(hangs, 3600, 50) == []


@pytest.mark.parametrize(("name", "role"), [("shard-0", Role.SHARD), ("replica-0", Role.REPLICA)])
def test_a_member_that_does_nothing_before_it_has_joined_is_told_once(
    name: str, role: Role
) -> None:
    hangs, limit = heard_once(), int(IDLE_SECONDS[role])
    assert without_joining(hangs, name, 2, limit) == []
    (found,) = without_joining(hangs, name, limit + 2, 10)
    assert found == Hang(name, 30, f"has not joined, and did nothing for {limit}.0 s")


def test_a_member_that_has_joined_may_do_nothing() -> None:
    hangs = heard_once()
    assert all(hangs.look(processes(), WORD, float(second)) == [] for second in range(2, 5000))


def test_a_member_that_computes_may_take_as_long_as_it_needs_to_join() -> None:
    """What it reads or imports may take hours."""
    seconds = iter(range(100_000))
    hangs = Hangs(PATIENCE, lambda _: next(seconds) // 500)
    assert without_joining(hangs, "shard-0", 0, 5000) == []


def test_nobody_can_join_a_coordinator_that_has_said_nothing_yet() -> None:
    hangs = Hangs(START_SECONDS, resting)
    shard = processes(member=Process("shard-0", State.RUNNING, pid=30))
    assert all(hangs.look(shard, None, float(second)) == [] for second in range(600))
    assert without_joining(hangs, "shard-0", 600, 600) == []


def test_the_next_incarnation_of_a_member_has_as_long_to_join() -> None:
    hangs = heard_once()
    assert without_joining(hangs, "shard-0", 2, 600) == []
    later = processes(member=Process("shard-0", State.RUNNING, pid=31))
    assert all(hangs.look(later, WORD, float(second)) == [] for second in range(602, 1202))


SERVER = Owing("fork-server", 40, "owes an answer", ANSWER_SECONDS)


def owed(hangs: Hangs, first: int, seconds: int) -> list[Hang]:
    """What is found in so many seconds in which a fork server owes an answer."""
    looks = [
        hangs.look(processes(), WORD, float(first + second), [SERVER]) for second in range(seconds)
    ]
    return [hang for found in looks for hang in found]


def test_a_fork_server_that_owes_an_answer_and_does_nothing_is_told_once() -> None:
    hangs, limit = heard_once(), int(ANSWER_SECONDS)
    assert owed(hangs, 2, limit) == []
    assert owed(hangs, 2 + limit, 10) == [
        Hang("fork-server", 40, f"owes an answer, and did nothing for {limit}.0 s")
    ]


def test_a_fork_server_that_answers_in_between_begins_anew() -> None:
    hangs, limit = heard_once(), int(ANSWER_SECONDS)
    assert owed(hangs, 2, limit) == []
    assert hangs.look(processes(), WORD, 2.0 + limit) == []
    assert owed(hangs, 3 + limit, limit) == []


def test_a_fork_server_is_missed_before_the_coordinator_has_said_anything() -> None:
    hangs = Hangs(PATIENCE, resting)
    looks = [hangs.look(processes(), None, float(second), [SERVER]) for second in range(32)]
    assert [hang.name for found in looks for hang in found] == ["fork-server"]
