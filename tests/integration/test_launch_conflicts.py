"""Commands that want the same output folder: one gets it, and the others change nothing in it.

Stand-ins take the roles' places and leave no ledgers: there is nothing for `disttrain audit`.
"""

import subprocess
from pathlib import Path

import yaml

from builders.launches import LaunchedRun, wait_until


def test_of_two_runs_started_at_once_one_gets_the_folder(tmp_path: Path) -> None:
    with LaunchedRun(tmp_path) as run:
        other = ("run", "job.yaml", "--output", "out", "--set", "spec.replicas.count=2")
        commands = {1: run.command, 2: run.start(*other)}
        wait_until(lambda: bool(_ended(commands)), "one of them is refused")
        (loser,) = _ended(commands)
        refused = commands.pop(loser)
        ((replicas, run.command),) = commands.items()
        said, _ = refused.communicate()
        assert (refused.returncode, "--output" in said) == (2, True), said

        run.wait_for("coordinator", "replica-0")
        job = yaml.safe_load((run.output / "job.yaml").read_text())
        assert job["spec"]["replicas"]["count"] == replicas
        run.complete()
        code, output = run.end()
        assert code == 0, output


def test_a_run_into_the_folder_of_a_living_one_says_who_uses_it(tmp_path: Path) -> None:
    with LaunchedRun(tmp_path) as run:
        run.wait_for("coordinator", "shard-0", "replica-0")
        before = _contents(run.output)
        refused = run.start("run", "job.yaml", "--output", "out")
        said, _ = refused.communicate(timeout=60)
        assert refused.returncode == 2
        assert f"a run with pid {run.command.pid} is using " in said
        assert "resume" not in said
        assert _contents(run.output) == before


def test_a_resume_of_a_living_run_changes_nothing(tmp_path: Path) -> None:
    with LaunchedRun(tmp_path) as run:
        run.wait_for("coordinator", "shard-0", "replica-0")
        for name in ("summary.json", "status.json"):
            (run.output / name).write_text("of the run that lives")
        before = _contents(run.output)
        refused = run.start("resume", "out")
        said, _ = refused.communicate(timeout=60)
        assert refused.returncode == 2
        assert "still going on" in said
        assert _contents(run.output) == before


def test_of_two_resumes_at_once_one_goes_on(tmp_path: Path) -> None:
    with LaunchedRun(tmp_path) as run:
        run.wait_for("coordinator", "replica-0")
        before = run.pid("replica-0")
        run.command.kill()
        run.command.communicate()
        commands = {number: run.start("resume", "out") for number in (1, 2)}
        wait_until(lambda: bool(_ended(commands)), "one of them is refused")
        (loser,) = _ended(commands)
        refused = commands.pop(loser)
        ((_, run.command),) = commands.items()
        said, _ = refused.communicate()
        assert (refused.returncode, "still going on" in said) == (2, True), said
        run.wait_for_new_incarnation("replica-0", before)
        run.complete()
        assert run.end()[0] == 0


def _ended(commands: "dict[int, subprocess.Popen[str]]") -> list[int]:
    return [number for number, command in commands.items() if command.poll() is not None]


def _contents(folder: Path) -> dict[Path, bytes]:
    """Without what the living run writes meanwhile."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files if path.suffix not in {".log", ".requests"}}
