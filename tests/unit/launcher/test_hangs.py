"""Which processes the launcher kills although they live."""

from disttrain.launcher.hangs import START_SECONDS, Hang, Hangs
from disttrain.launcher.supervision import Process, State

PATIENCE = 60.0
LOST = Hang("shard-1", 12, "silent for 60.0 s")


def processes(**changed: Process) -> dict[str, Process]:
    usual = [
        Process("coordinator", State.RUNNING, pid=10),
        Process("shard-1", State.RUNNING, pid=12),
    ]
    return {each.name: each for each in usual} | {each.name: each for each in changed.values()}


def heard_once() -> Hangs:
    """The coordinator has said something at second 1."""
    hangs = Hangs(PATIENCE)
    assert hangs.look(processes(), None, 0.0) == []
    assert hangs.look(processes(), (), 1.0) == []
    return hangs


def silent(hangs: Hangs, first: int, seconds: int, step: float = 0.5) -> list[Hang]:
    """What is found in so many seconds without a word."""
    looks = int(seconds / step)
    found = [hangs.look(processes(), None, first + step * look) for look in range(1, looks + 1)]
    return [hang for hangs_found in found for hang in hangs_found]


def test_a_member_that_was_declared_dead_and_lives_is_told_once() -> None:
    hangs = heard_once()
    assert hangs.look(processes(), (LOST,), 2.0) == [LOST]
    assert hangs.look(processes(), (LOST,), 3.0) == []


def test_a_member_whose_life_was_declared_dead_lives_on_in_its_next() -> None:
    hangs = heard_once()
    later = processes(shard=Process("shard-1", State.RUNNING, pid=99))
    assert hangs.look(later, (LOST,), 2.0) == []


def test_a_later_life_may_have_the_number_of_one_that_was_told() -> None:
    hangs = heard_once()
    assert hangs.look(processes(), (LOST,), 2.0) == [LOST]
    between = processes(shard=Process("shard-1", State.WAITING, pid=12))
    assert hangs.look(between, (LOST,), 3.0) == []

    assert hangs.look(processes(), (LOST,), 4.0) == [LOST]


def test_a_member_that_has_ended_and_one_of_somebody_else_are_left_alone() -> None:
    hangs = heard_once()
    waiting = processes(shard=Process("shard-1", State.WAITING, pid=12))
    assert hangs.look(waiting, (LOST,), 2.0) == []
    assert hangs.look(processes(), (Hang("replica-700", 13, "silent"),), 3.0) == []


def test_a_coordinator_that_says_nothing_any_more_is_told_after_the_patience() -> None:
    hangs = heard_once()
    assert silent(hangs, 1, 59) == []
    (found,) = silent(hangs, 60, 3)
    assert (found.name, found.pid, found.reason) == ("coordinator", 10, "silent for 60.0 s")


def test_each_word_of_the_coordinator_begins_the_patience_anew() -> None:
    hangs = heard_once()
    assert silent(hangs, 1, 50) == []
    assert hangs.look(processes(), (), 51.5) == []
    assert silent(hangs, 52, 50) == []


def test_a_coordinator_that_has_not_said_anything_yet_may_take_longer() -> None:
    hangs = Hangs(PATIENCE)
    assert silent(hangs, 0, int(START_SECONDS)) == []
    assert len(silent(hangs, int(START_SECONDS), 2)) == 1


def test_the_next_life_of_the_coordinator_begins_anew() -> None:
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
