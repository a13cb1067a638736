"""When a process that ended is started again."""

import signal

import pytest

from builders.jobs import a_job
from disttrain.job.names import Role
from disttrain.job.roles import Durability
from disttrain.job.spec import Spec
from disttrain.launch.exit_code import ExitCode
from disttrain.launcher.restart_policy import (
    Exit,
    GiveUpReason,
    History,
    Restart,
    decide,
)

KILLED = Exit(-signal.SIGKILL)
SOON = 1.0


def a_policy(durability: Durability = Durability.CHECKPOINT, replica_restarts: int = 10) -> Spec:
    return a_job(
        f"spec.parameterServer.durability={durability}",
        f"spec.failurePolicy.maxRestarts.replica={replica_restarts}",
        "spec.failurePolicy.restartBackoff={initialSeconds: 0.5, maxSeconds: 3}",
    ).spec


def test_the_wait_doubles_up_to_the_longest() -> None:
    history = History()
    waits = [decide(a_policy(), history, "replica-0", KILLED, lived_seconds=SOON) for _ in range(5)]
    assert waits == [Restart(s, n) for n, s in enumerate([0.5, 1, 2, 3, 3], start=1)]


def test_the_wait_is_per_process_and_the_budget_per_role() -> None:
    history = History()
    policy = a_policy(replica_restarts=2)
    assert decide(policy, history, "replica-0", KILLED, lived_seconds=SOON) == Restart(0.5, 1)
    assert decide(policy, history, "replica-1", KILLED, lived_seconds=SOON) == Restart(0.5, 2)
    given_up = decide(policy, history, "replica-2", KILLED, lived_seconds=SOON)
    assert given_up == GiveUpReason.TOO_MANY_RESTARTS
    assert decide(policy, history, "shard-0", KILLED, lived_seconds=SOON) == Restart(0.5, 1)
    assert history.restarts == {Role.REPLICA: 2, Role.SHARD: 1}


def test_a_budget_that_nobody_gave_grows_with_the_members_of_the_role() -> None:
    policy = a_job("spec.replicas.count=8").spec

    def restarts_of(name: str) -> int:
        history = History()
        while isinstance(decide(policy, history, name, KILLED, lived_seconds=SOON), Restart):
            pass
        return sum(history.restarts.values())

    assert [restarts_of(name) for name in ("replica-0", "shard-0", "coordinator")] == [24, 10, 10]


def test_a_long_incarnation_makes_the_next_wait_short_again() -> None:
    history = History()
    for _ in range(3):
        decide(a_policy(), history, "shard-0", KILLED, lived_seconds=SOON)
    assert decide(a_policy(), history, "shard-0", KILLED, lived_seconds=60) == Restart(0.5, 4)


def test_a_final_error_is_not_tried_again() -> None:
    verdict = decide(
        a_policy(), History(), "replica-0", Exit(ExitCode.FINAL_ERROR), lived_seconds=SOON
    )
    assert verdict == GiveUpReason.FINAL_ERROR


def test_without_durability_the_job_fails_with_the_shard_only() -> None:
    policy = a_policy(Durability.NONE)
    lost = decide(policy, History(), "shard-0", KILLED, lived_seconds=SOON)
    assert lost == GiveUpReason.SHARD_LOST
    assert isinstance(decide(policy, History(), "replica-0", KILLED, lived_seconds=1), Restart)


def test_a_shard_that_was_told_to_end_is_not_lost() -> None:
    policy = a_policy(Durability.NONE)
    ended = decide(policy, History(), "shard-0", Exit(ExitCode.COMPLETE), lived_seconds=SOON)
    assert isinstance(ended, Restart)


@pytest.mark.parametrize("code", [ExitCode.COMPLETE, ExitCode.INTERRUPTED, -signal.SIGTERM])
def test_an_orderly_end_waits_for_the_job_to_end_first(code: int) -> None:
    verdict = decide(a_policy(), History(), "replica-0", Exit(code), lived_seconds=SOON)
    assert verdict == Restart(5.0, 1)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (70, "exit code 70"),
        (-signal.SIGKILL, "killed by SIGKILL"),
        (-signal.SIGSEGV, "killed by SIGSEGV"),
    ],
)
def test_an_exit_in_words(code: int, text: str) -> None:
    assert str(Exit(code)) == text
