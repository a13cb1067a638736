"""The command line as a whole: what it says about itself, what it imports, how it ends."""

import importlib.metadata
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from builders.jobs import SMALL
from disttrain.cli import app as command_line
from disttrain.cli import table
from disttrain.cli.app import app
from disttrain.errors import DistTrainError, RetryableError
from disttrain.job.fields import job_schema
from disttrain.job.finding import Finding, InvalidManifest
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.run_folder import RunFolder

TABLE = table.COMMANDS
COMMANDS = sorted(name for name, _, _ in TABLE)


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_an_example(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"disttrain {command}" in result.output


@pytest.mark.parametrize(("command", "sentence"), [(name, said) for name, _, said in TABLE])
def test_the_table_says_what_the_command_says_of_itself(command: str, sentence: str) -> None:
    text = command_line.loaded(command).help or ""
    assert " ".join(text.split("\n\n")[0].split()) == sentence


def test_the_list_of_commands_needs_none_of_their_modules() -> None:
    looked = (
        "import sys; from disttrain.cli import app, main\n"
        "sys.argv[1:] = ['--help']\n"
        "try: main.main()\n"
        "finally: print(*(each for each in sys.modules if each.startswith('disttrain.cli.')))"
    )
    done = started("-c", looked)
    assert "resume" in done.stdout
    wanted = ["disttrain.cli.app", "disttrain.cli.main", "disttrain.cli.table"]
    assert sorted(done.stdout.splitlines()[-1].split()) == wanted


@pytest.mark.parametrize("what", table.LATER)
def test_what_is_imported_later_is_there(what: str) -> None:
    assert callable(table.later(what))


@pytest.mark.parametrize("command", COMMANDS)
def test_each_example_of_a_help_has_a_line_of_its_own(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"]).output
    assert all(line.count("Example: ") <= 1 for line in shown.splitlines())


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("run", "[OPTIONS] JOB.yaml"),
        ("export", "[OPTIONS] CHECKPOINT OUT"),
        ("validate", "[OPTIONS] FILE..."),
        ("suspend", "[OPTIONS] NAME..."),
        ("delete", "[OPTIONS] [NAME]..."),
    ],
)
def test_a_usage_writes_arguments_as_they_are_typed(command: str, usage: str) -> None:
    first, *_ = (
        CliRunner().invoke(app, [command, "--help"], prog_name="disttrain").output.split("\n")
    )
    assert first == f"Usage: disttrain {command} {usage}"


NUMBERS = {
    "evaluate": 2,
    "logs": 2,
    "plan": 2,
    "replay": 1,
    "scale": 1,
    "simulate": 3,
    "timeline": 3,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_number_that_cannot_be_is_told_with_what_can(command: str) -> None:
    parameters: list[Any] = list(command_line.loaded(command).params)  # typer's own types
    numbers = [each.opts[0] for each in parameters if {each.min, each.max} != {None}]
    assert len(numbers) == NUMBERS.get(command, 0)
    for option, value in itertools.product(numbers, ("-1", "x", "nan", "inf", "1e999")):
        refused = CliRunner().invoke(app, [command, "nowhere", option, value])
        assert refused.exit_code == 2
        head, _, said = refused.output.splitlines()[-1].partition(": must be a")
        assert head == f"Error: Invalid value for '{option}'"
        bound = "(t least|t most) [0-9.e+-]+"
        assert re.fullmatch(f"{bound}, got {value}|.*number, got '{value}'", said)


def test_a_submitted_job_is_printed_in_no_form_of_a_table() -> None:
    refused = CliRunner().invoke(app, ["submit", "job.yaml", "-o", "wide"])
    assert refused.exit_code == 2
    assert "'-o': 'wide' is not one of 'name', 'json', 'yaml'" in refused.output


def test_help_lists_the_commands() -> None:
    output = CliRunner().invoke(app, ["--help"]).output
    assert all(f"\n  {command} " in output for command in COMMANDS)


def test_the_schema_is_printed_as_json() -> None:
    assert json.loads(CliRunner().invoke(app, ["schema"]).output) == job_schema()


def test_the_package_is_a_command_too() -> None:
    version = importlib.metadata.version("disttrain")
    assert started("-m", "disttrain", "--version").stdout == f"disttrain {version}\n"


@pytest.mark.parametrize("arguments", ["'--help'", "'validate', 'job.yaml'"])
def test_help_and_validate_load_nothing_heavy(tmp_path: Path, arguments: str) -> None:
    (tmp_path / "job.yaml").write_text(SMALL)
    program = f"""
import atexit, os, sys
os.chdir({str(tmp_path)!r})
heavy = ("torch", "zmq", "numpy", "rich", "prometheus_client", "kubernetes")
atexit.register(lambda: print("loaded", [name for name in heavy if name in sys.modules]))
sys.argv = ["disttrain", {arguments}]
from disttrain.cli.main import main
sys.exit(main())
"""
    result = started("-c", program)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "loaded []"


def test_a_stream_that_was_closed_is_taken_by_no_file() -> None:
    program = """
import os, sys
from disttrain.cli.main import main
sys.argv = ["disttrain", "--version"]
try:
    main()
except SystemExit as end:
    streams = (sys.stdin, sys.stdout)
    told = [stream.fileno() for stream in streams], [stream.isatty() for stream in streams]
    print(end.code, *told, file=sys.stderr)
"""
    closed = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" <&- >&-', sys.executable, program],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert closed.stderr == "0 [0, 1] [False, False]\n"


def printed_into(stdout: int, folder: Path, command: str) -> tuple[int, str]:
    """Exit code and standard error of a command, beside the folder of a run."""
    run = RunFolder(folder / "run")
    run.prepare()
    run.status.write_text('{"phase": "Running"}')
    done = subprocess.run(
        [sys.executable, "-m", "disttrain", *command.split()],
        cwd=folder,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("command", ["schema", "status run"])
def test_what_a_full_disk_does_not_take_is_told_in_a_line(tmp_path: Path, command: str) -> None:
    with Path("/dev/full").open("w") as full:
        code, said = printed_into(full.fileno(), tmp_path, command)
    assert said == "error: [Errno 28] No space left on device\n"
    assert code == ExitCode.FAILED


@pytest.mark.parametrize("command", ["schema", "status run"])
def test_nothing_is_said_when_nobody_reads(tmp_path: Path, command: str) -> None:
    reader, pipe = os.pipe()
    os.close(reader)
    found = printed_into(pipe, tmp_path, command)
    os.close(pipe)
    assert found == (ExitCode.FAILED, "")


def test_an_unknown_command_names_the_nearest() -> None:
    result = started("-m", "disttrain", "validat")
    assert result.returncode == ExitCode.USAGE
    assert "'validate'" in result.stderr


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (
            InvalidManifest("job.yaml", [Finding(path=("spec",), message="required", line=1)]),
            ExitCode.USAGE,
            "job.yaml:1: spec: required\n",
        ),
        (RetryableError("the disk is full"), ExitCode.FAILED, "error: the disk is full\n"),
    ],
)
def test_errors_become_one_line_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: DistTrainError,
    code: ExitCode,
    text: str,
) -> None:
    def fail() -> None:
        raise error

    failing = typer.Typer(pretty_exceptions_enable=False)
    failing.command()(fail)
    monkeypatch.setattr(command_line, "app", failing)
    monkeypatch.setattr(sys, "argv", ["disttrain"])
    assert command_line.call("disttrain") == code
    assert capsys.readouterr().err == text


def test_an_interrupt_before_a_command_has_begun_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(**_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "app", interrupted)
    assert command_line.call("disttrain") == ExitCode.INTERRUPTED
