"""`disttrain run` with stand-ins for the roles: ends, restarts, exit codes.

Stand-ins leave no ledgers: there is nothing for `disttrain audit`. Real jobs are in test_faults.py.
"""

import json
import signal
from pathlib import Path

import pytest

from builders.at_night import at_night
from builders.launches import LaunchedRun, wait_until

ALL = ("coordinator", "shard-0", "shard-1", "replica-0", "replica-1")
TWO_AND_TWO = ("--set", "spec.parameterServer.shards=2", "--set", "spec.replicas.count=2")
QUICK_RESTARTS = ("--set", "spec.failurePolicy.restartBackoff.initialSeconds=0.01")


def test_a_complete_job_exits_with_0_and_leaves_no_process(tmp_path: Path) -> None:
    with LaunchedRun(tmp_path, *TWO_AND_TWO) as run:
        run.wait_for(*ALL)
        run.complete()
        code, output = run.end()
        assert code == 0, output
        assert "Complete" in output
        run.wait_until_nothing_is_left(5)
        assert {path.stem for path in (run.output / "logs").iterdir()} >= {*ALL, "launcher"}
        assert not Path(json.loads((run.output / "run.json").read_text())["sockets"]).exists()


def test_killed_processes_start_again_and_the_coordinator_is_told(tmp_path: Path) -> None:
    with LaunchedRun(tmp_path, *TWO_AND_TWO, *QUICK_RESTARTS) as run:
        run.wait_for(*ALL)
        first_coordinator = run.kill("coordinator")
        run.wait_for_new_incarnation("coordinator", first_coordinator)
        for name in ("replica-1", "shard-0"):
            before = run.kill(name)
            run.wait_for_new_incarnation(name, before)
        wait_until(lambda: len(run.requests("member_died")) == 2, "two deaths are told")
        told = [(each["index"], each["exit_code"]) for each in run.requests("member_died")]
        assert told == [(1, -signal.SIGKILL), (0, -signal.SIGKILL)]
        run.complete()
        code, output = run.end()
        assert code == 0, output
        assert "replica-1: killed by SIGKILL; starts again in" in output


def test_an_end_with_0_that_nobody_told_is_no_secret_and_counts(tmp_path: Path) -> None:
    once = ("--set", "spec.failurePolicy.maxRestarts.replica=1")
    with LaunchedRun(tmp_path, *once) as run:
        run.wait_for("coordinator", "shard-0", "replica-0")
        before = run.pid("replica-0")
        run.tell("replica-0", "0")
        run.wait_for_new_incarnation("replica-0", before)
        run.wait_for_output("replica-0: exit code 0 before the job's end; starts again now")
        run.tell("replica-0", "0")
        run.wait_for_output("the job fails: replica-0: exit code 0, and may not be started again")


def test_a_coordinator_over_tcp_comes_back_where_it_was(tmp_path: Path) -> None:
    with LaunchedRun(tmp_path, *QUICK_RESTARTS, "--set", "spec.transport=tcp") as run:
        run.wait_for("coordinator", "replica-0")
        address = _coordinator_address(run)
        first = run.kill("coordinator")
        run.wait_for_new_incarnation("coordinator", first)
        before = run.kill("replica-0")
        run.wait_for_new_incarnation("replica-0", before)
        wait_until(
            lambda: bool(run.requests("member_died")), "the new incarnation is told of a death"
        )
        assert _coordinator_address(run) == address
        run.complete()
        assert run.end()[0] == 0


def _coordinator_address(run: LaunchedRun) -> str:
    config = json.loads((run.output / "launch" / "coordinator.json").read_text())
    return str(config["listen_address"])


def test_what_a_killed_member_started_dies_with_it(tmp_path: Path) -> None:
    with LaunchedRun(tmp_path) as run:
        run.wait_for("replica-0")
        run.tell("replica-0", "child")
        wait_until(lambda: len(run.children_named("sleep")) == 1, "the replica has a child")
        run.kill("replica-0")
        wait_until(lambda: not run.children_named("sleep"), "the child is gone")


def test_a_crash_shows_in_the_log_and_starts_again(tmp_path: Path) -> None:
    with LaunchedRun(tmp_path, *QUICK_RESTARTS) as run:
        run.wait_for("replica-0")
        before = run.pid("replica-0")
        run.tell("replica-0", "crash")
        run.wait_for_new_incarnation("replica-0", before)
        wait_until(lambda: bool(run.requests("member_died")), "the death is told")
        (death,) = run.requests("member_died")
        assert death["exit_code"] == 70
        assert "RuntimeError: nobody expected this" in death["log_tail"]


def test_a_final_error_fails_the_job_with_its_message(tmp_path: Path) -> None:
    with LaunchedRun(tmp_path) as run:
        run.wait_for("coordinator", "replica-0")
        run.tell("replica-0", "final")
        code, output = run.end()
        assert code == 1
        assert "replica-0: digits.py, line 3: the loss is not a scalar" in output
        assert not run.requests("member_died")
        run.wait_until_nothing_is_left(5)


def test_a_spent_budget_fails_the_job(tmp_path: Path) -> None:
    budget = ("--set", "spec.failurePolicy.maxRestarts.replica=1")
    with LaunchedRun(tmp_path, *QUICK_RESTARTS, *budget) as run:
        run.wait_for("coordinator", "replica-0")
        before = run.kill("replica-0")
        run.wait_for_new_incarnation("replica-0", before)
        run.kill("replica-0")
        code, output = run.end()
        assert code == 1
        assert "Failed (TooManyRestarts)" in output
        assert [each["final"] for each in run.requests("member_died")] == [False, True]


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with LaunchedRun(tmp_path) as run:
        code, output = run.end()
        assert code == 2
        assert "out is not empty; choose another folder with --output" in output
        assert [path.name for path in run.output.iterdir()] == ["notes.txt"]


def test_a_task_module_that_starts_threads_is_left_to_the_replicas(tmp_path: Path) -> None:
    module = (
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    with LaunchedRun(tmp_path, module=module) as run:
        run.wait_for("shard-0", "replica-0")
        assert (run.output / "replica-0.threads").read_text() == "1"
        assert "module starts threads" in (run.output / "logs" / "launcher.log").read_text()
        run.complete()
        assert run.end()[0] == 0


@pytest.mark.parametrize(
    ("module", "how"),
    [
        ("import os; os._exit(3)", "exit code 3"),
        *at_night(
            ("import os; os.closerange(3, 5000)", "exit code 1"),
            ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ),
    ],
)
def test_a_task_module_that_ends_the_fork_server_is_left_to_the_replicas(
    tmp_path: Path, module: str, how: str
) -> None:
    with LaunchedRun(tmp_path, *QUICK_RESTARTS, module=module) as run:
        run.wait_for_output(f"importing 'digits' ended the process that imports it for all ({how})")
        run.wait_for("shard-0", "replica-0")
        run.complete()
        assert run.end()[0] == 0


def test_a_task_module_that_closes_its_output_does_not_keep_replicas_from_starting(
    tmp_path: Path,
) -> None:
    with LaunchedRun(tmp_path, module="import sys; sys.stdout.close()") as run:
        run.wait_for("shard-0", "replica-0")
        run.complete()
        assert run.end()[0] == 0


def test_a_task_module_that_raises_does_not_keep_replicas_from_starting(tmp_path: Path) -> None:
    with LaunchedRun(tmp_path, module="raise SystemExit(1)") as run:
        run.wait_for("coordinator", "replica-0")
        log = (run.output / "logs" / "launcher.log").read_text()
        assert "module raises: replicas import it" in log
        assert "error=SystemExit" in log
        run.complete()
        assert run.end()[0] == 0
