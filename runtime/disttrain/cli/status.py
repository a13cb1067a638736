"""`disttrain status`: how a run is, or how it ended."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from disttrain.cli import wording
from disttrain.cli.display import done
from disttrain.errors import FinalError
from disttrain.job import run_status
from disttrain.job.run_status import RunStatus
from disttrain.launch.errors import NotARunFolder
from disttrain.launch.outcome import Result
from disttrain.launch.run_folder import RunFolder

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of the run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print status.json on one line instead.")]
Watch = Annotated[bool, typer.Option("--watch", help="Print every two seconds until the end.")]

WATCH_SECONDS = 2.0
WIDTH_OF_PIPES = 160


def status(folder: Folder, *, as_json: AsJson = False, watch: Watch = False) -> None:
    """Show how the run in DIR is, and in one sentence what limits its speed.

    The table lists each process, while it runs with the address of its Prometheus metrics.

    Example: disttrain status runs/digits-20260131-120000 --watch
    """
    while True:
        found = find(folder)
        if found is None:
            raise _lack(RunFolder(folder))
        if as_json:
            typer.echo(json.dumps(found.content))
        else:
            show(found)
        if not watch or found.is_over:
            return
        time.sleep(WATCH_SECONDS)


def _lack(run: RunFolder) -> FinalError:
    if (lack := run.why_none()) is not None:
        return NotARunFolder(lack)
    if run.status.exists():
        return FinalError(f"{run.status} is damaged, or of a version that this one does not know")
    return NotARunFolder(f"{run.path} holds no run that has begun")


@dataclass(frozen=True, slots=True)
class Found:
    """The status of a run and whether somebody still works on it."""

    content: dict[str, Any]
    """status.json, with `running` added."""
    status: RunStatus
    running: bool

    @property
    def is_over(self) -> bool:
        return not self.running or self.status.phase in set(Result)


def find(path: Path) -> Found | None:
    """The status of the run in a folder; None if there is none."""
    folder = RunFolder(path)
    found = run_status.read_written(folder.status)
    if found is None:
        return None
    written, status = found
    running = folder.is_held()
    return Found(json.loads(written) | {"running": running}, status, running)


def show(found: Found, console: Console | None = None) -> None:
    out = console or _console()
    status = found.status
    out.print(wording.progress_line(status), soft_wrap=True)
    out.print(_table(status, running=found.running))
    if status.reason or status.message:
        out.print(wording.ending(status.phase, status.reason, status.message), soft_wrap=True)
    for warning in status.warnings:
        out.print(f"warning: {warning}", soft_wrap=True)
    if status.limit:
        out.print(f"What limits the speed: {status.limit}", soft_wrap=True)
    if not found.running and status.phase not in set(Result):
        out.print("No launcher is running; go on with `disttrain resume`.", soft_wrap=True)


def _console() -> Console:
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        # A pipe has no width; folded addresses could not be searched for.
        console.width = WIDTH_OF_PIPES
    return console


def _table(status: RunStatus, *, running: bool) -> Table:
    # Nobody answers on the addresses of an ended run, or somebody else does; so with process ids.
    of_running = ("pid", "metrics") if running else ()
    titles = ("process", "state", "incarnation", "done", "staleness p50/p99", *of_running)
    unit = wording.version_unit(status)
    rows = [("coordinator", status.phase, "", "", "", "", _url(status.metrics_address))]
    for member in status.members:
        state = (member.activity or member.state) if running else "ended"
        incarnation, pid = wording.incarnation(member.incarnation), str(member.pid)
        url = _url(member.metrics_address)
        stale = wording.quantiles(member.staleness_p50, member.staleness_p99)
        rows.append((member.name, state, incarnation, done(member, unit), stale, pid, url))
    columns = [each for each in zip(titles, *rows, strict=False) if any(each[1:])]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title, *_ in columns:
        table.add_column(title, overflow="fold")
    for row in list(zip(*columns, strict=True))[1:]:
        table.add_row(*row)
    return table


def _url(address: str | None) -> str:
    return f"http://{address}/metrics" if address else ""
