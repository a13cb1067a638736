"""However a run ends, no process is left, and it says how to go on.

Stand-ins take the roles' places and leave no ledgers: there is nothing for `disttrain audit`. A
real job whose launcher is killed is audited in test_faults.py.
"""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from builders import checkpoints, small_disk
from builders.at_night import others_at_night
from builders.launches import LaunchedRun, wait_until

pytestmark = pytest.mark.landing


@pytest.mark.parametrize("number", [signal.SIGTERM, *others_at_night(signal.SIGINT, signal.SIGHUP)])
def test_an_interrupt_orders_a_stop_and_says_how_to_resume(
    tmp_path: Path, number: signal.Signals
) -> None:
    with LaunchedRun(tmp_path) as run:
        run.wait_for("coordinator", "shard-0", "replica-0")
        # The stand-in for a coordinator writes no checkpoint when it is told to stop.
        checkpoints.a_checkpoint(tmp_path / "out" / "checkpoints")
        run.command.send_signal(number)
        code, output = run.end()
        assert code == 130
        assert len(run.requests("stop")) == 1
        assert "disttrain resume out" in output
        run.wait_until_nothing_is_left(5)


def test_a_second_interrupt_kills(tmp_path: Path) -> None:
    with LaunchedRun(tmp_path) as run:
        run.wait_for("coordinator", "shard-0", "replica-0")
        os.kill(run.pid("coordinator"), signal.SIGSTOP)
        run.command.send_signal(signal.SIGINT)
        run.wait_for_output("stopping after a checkpoint")
        run.command.send_signal(signal.SIGINT)
        code, _ = run.end()
        assert code == 130
        run.wait_until_nothing_is_left(5)


@pytest.mark.parametrize("end", others_at_night(os.openpty, os.pipe))
def test_a_run_goes_on_when_nobody_reads_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Callable[[], tuple[int, int]]
) -> None:
    # A dumb one would be drawn on at the end only.
    monkeypatch.setenv("TERM", "xterm")
    reader, printed = end()
    with LaunchedRun(tmp_path, printed=printed) as run:
        os.close(printed)
        run.wait_for("coordinator", "shard-0", "replica-0")
        os.close(reader)
        run.wait_for_new_incarnation("replica-0", run.kill("replica-0"))
        run.complete()
        assert run.end()[0] == 0
        log = (run.output / "logs" / "launcher.log").read_text()
        assert log.count("standard output takes no more") == 1


def test_a_run_whose_terminal_is_closed_stops_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    reader, terminal = os.openpty()
    with LaunchedRun(tmp_path, printed=terminal) as run:
        os.close(terminal)
        run.wait_for("coordinator", "shard-0", "replica-0")
        os.close(reader)
        run.command.send_signal(signal.SIGHUP)
        assert run.end()[0] == 130
        assert len(run.requests("stop")) == 1


def test_a_run_that_can_print_nothing_from_the_start_goes_on(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    with LaunchedRun(tmp_path, printed=full) as run:
        os.close(full)
        run.wait_for("coordinator", "shard-0", "replica-0")
        run.complete()
        assert run.end()[0] == 0


def test_a_full_disk_is_told_and_its_end_too(tmp_path: Path) -> None:
    with small_disk.mounted(tmp_path / "disk") as disk, LaunchedRun(disk) as run:
        run.wait_for("coordinator", "shard-0", "replica-0")
        small_disk.fill(disk / "ballast")
        run.wait_for_output("is full: nothing is saved until it has room")
        (disk / "ballast").unlink()
        (run.output / "coordinator.saved").write_text("1")
        run.wait_for_output("has room again")
        run.command.send_signal(signal.SIGINT)
        code, _ = run.end()
        assert code == 130


@pytest.mark.parametrize("killed", others_at_night("coordinator", "shard-0", "replica-0"))
def test_a_process_that_dies_while_the_disk_is_full_starts_again(
    tmp_path: Path, killed: str
) -> None:
    with small_disk.mounted(tmp_path / "disk") as disk, LaunchedRun(disk) as run:
        run.wait_for("coordinator", "shard-0", "replica-0")
        small_disk.fill(disk / "ballast")
        run.wait_for_new_incarnation(killed, run.kill(killed))
        (disk / "ballast").unlink()
        run.complete()
        assert run.end()[0] == 0


def test_a_process_whose_config_cannot_be_written_starts_when_it_can(tmp_path: Path) -> None:
    with LaunchedRun(tmp_path) as run:
        run.wait_for("coordinator", "shard-0", "replica-0")
        config = run.output / "launch" / "replica-0.json"
        config.unlink()
        config.mkdir()
        before = run.kill("replica-0")
        run.wait_for_output("replica-0 cannot be started (")
        config.rmdir()
        run.wait_for_new_incarnation("replica-0", before)
        run.complete()
        assert run.end()[0] == 0


@pytest.mark.parametrize("kind", ["child", "daemon"])
def test_nothing_outlives_a_killed_launcher(tmp_path: Path, kind: str) -> None:
    with LaunchedRun(tmp_path) as run:
        run.wait_for("coordinator", "shard-0", "replica-0")
        run.tell("replica-0", kind)
        wait_until(lambda: bool(run.children_named("sleep")), "a grandchild")
        run.command.kill()
        run.wait_until_nothing_is_left()


def test_nothing_outlives_a_launcher_killed_while_it_starts(tmp_path: Path) -> None:
    with LaunchedRun(tmp_path) as run:
        wait_until(lambda: len(run.processes()) > 1, "the first child")
        run.command.kill()
        run.wait_until_nothing_is_left()


@pytest.mark.parametrize(
    "stopped", others_at_night("fork-server", "coordinator", "shard-0", "replica-0")
)
def test_a_stopped_process_does_not_outlive_a_killed_launcher(tmp_path: Path, stopped: str) -> None:
    with LaunchedRun(tmp_path) as run:
        run.wait_for("coordinator", "shard-0", "replica-0")
        run.tell("replica-0", "child")
        wait_until(lambda: bool(run.children_named("sleep")), "a grandchild")
        pid = _fork_server(run).pid if stopped == "fork-server" else run.pid(stopped)
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, "it is stopped")
        run.command.kill()
        run.wait_until_nothing_is_left()


def test_a_launcher_killed_with_news_unread_takes_everything_along(tmp_path: Path) -> None:
    with LaunchedRun(tmp_path) as run:
        run.wait_for("coordinator", "shard-0", "replica-0")
        run.tell("replica-0", "child")
        wait_until(lambda: bool(run.children_named("sleep")), "a grandchild")
        run.command.send_signal(signal.SIGSTOP)
        killed = run.kill("shard-0")
        wait_until(lambda: not psutil.pid_exists(killed), "the fork server has noticed")
        run.command.kill()
        run.wait_until_nothing_is_left()


@pytest.mark.parametrize("part", others_at_night("", "launch"))
def test_a_run_whose_folder_is_gone_ends(tmp_path: Path, part: str) -> None:
    with LaunchedRun(tmp_path) as run:
        run.wait_for("coordinator", "shard-0", "replica-0")
        (run.output / part).rename(tmp_path / "elsewhere")
        code, output = run.end()
        assert code == 1
        assert "Failed (RunFolderGone)" in output
        assert f"{run.output} was deleted or renamed" in output
        run.wait_until_nothing_is_left(5)


HANGING = """
import pathlib, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
pathlib.Path("importing").touch()
time.sleep(1000)
"""


def test_a_task_module_that_hangs_does_not_outlive_a_killed_launcher(tmp_path: Path) -> None:
    with LaunchedRun(tmp_path, module=HANGING) as run:
        wait_until((tmp_path / "importing").exists, "the module is being imported")
        run.command.kill()
        run.wait_until_nothing_is_left()


def test_the_sockets_of_a_killed_launcher_are_removed_by_the_next_run(tmp_path: Path) -> None:
    for folder in ("killed", "next"):
        (tmp_path / folder).mkdir()
    with LaunchedRun(tmp_path / "killed") as run:
        run.wait_for("coordinator")
        sockets = Path(json.loads((run.output / "run.json").read_text())["sockets"])
        run.command.kill()
        run.wait_until_nothing_is_left()
    with LaunchedRun(tmp_path / "next") as run:
        run.wait_for("coordinator")
        assert not sockets.exists()


def test_a_killed_fork_server_takes_its_children_along_and_all_come_back(tmp_path: Path) -> None:
    quick = ("--set", "spec.failurePolicy.restartBackoff.initialSeconds=0.01")
    with LaunchedRun(tmp_path, *quick) as run:
        run.wait_for("coordinator", "shard-0", "replica-0")
        before = {name: run.pid(name) for name in ("shard-0", "replica-0")}
        _fork_server(run).kill()
        for name, pid in before.items():
            run.wait_for_new_incarnation(name, pid)
            assert not psutil.pid_exists(pid)
        run.complete()
        assert run.end()[0] == 0
        run.wait_until_nothing_is_left(5)


def test_a_killed_run_can_be_resumed(tmp_path: Path) -> None:
    with LaunchedRun(tmp_path) as run:
        run.wait_for("coordinator", "shard-0", "replica-0")
        run.command.kill()
        run.command.communicate()
        run.wait_until_nothing_is_left()
        before = run.pid("replica-0")
        run.command = run.start("resume", "out")
        run.wait_for_new_incarnation("replica-0", before)
        run.complete()
        code, output = run.end()
        assert code == 0, output


def _fork_server(run: LaunchedRun) -> psutil.Process:
    (server,) = (
        each
        for each in run.processes()
        if each.info["ppid"] == run.command.pid
        and "disttrain.launcher.fork_server" in (each.info["cmdline"] or ())
    )
    return server
