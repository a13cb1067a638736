"""Live progress on a terminal: a bar, a table of the processes, the latest events."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from disttrain.cli import wording
from disttrain.job import terminal_text
from disttrain.job.run_status import Member, RunStatus
from disttrain.launcher.supervision import Process, State

EVENTS_SHOWN = 5
ROWS_SHOWN = 24
"""Rows of processes; a job may have thousands, a terminal has not."""

STATE_STYLES = {State.RUNNING: "green", State.WAITING: "yellow", State.ENDED: "dim"}


class LiveDisplay:
    """Redraws itself at each tick; leaves the last picture on the screen."""

    def __init__(
        self, read: Callable[[], RunStatus | None], console: Console | None = None
    ) -> None:
        self._read = read
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def event(self, text: str) -> None:
        self._events.append(terminal_text.escaped(text))

    def tick(self, processes: Sequence[Process]) -> None:
        self._live.update(picture(self._read(), processes, list(self._events)), refresh=True)


def picture(
    status: RunStatus | None, processes: Sequence[Process], events: Sequence[str]
) -> RenderableType:
    members = {member.name: member for member in status.members} if status else {}
    head = [Text("starting")] if status is None else _head(status)
    return Group(
        *head,
        _table(processes, members, wording.version_unit(status)),
        *(Text(text, "yellow") for text in events),
    )


def _head(status: RunStatus) -> list[RenderableType]:
    bar = Table.grid(padding=(0, 1))
    percent = status.training.progress_percent
    # With a target alone nobody knows how much is left.
    shown = () if percent is None else (ProgressBar(completed=percent, width=40), f"{percent}%")
    bar.add_row(f"epoch {status.training.epoch or 0:.2f}", *shown, wording.remaining(status))
    warnings = [Text(f"warning: {text}", "yellow") for text in status.warnings]
    return [bar, Text(wording.progress_line(status)), Text(status.limit, "dim"), *warnings]


def _table(processes: Sequence[Process], members: dict[str, Member], unit: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("process", "state", "incarnation", "done", "restarts"):
        table.add_column(title)
    for process in processes[:ROWS_SHOWN]:
        table.add_row(*_row(process, members.get(process.name), unit))
    if len(processes) > ROWS_SHOWN:
        table.add_row(f"and {len(processes) - ROWS_SHOWN} more")
    return table


def _row(process: Process, member: Member | None, unit: str) -> tuple[RenderableType, ...]:
    state = Text(process.state.value, STATE_STYLES.get(process.state, ""))
    if member is None:
        return (process.name, state, "", "", str(process.restarts))
    # The coordinator's word says more than "running": joining, serving, fenced.
    known = member.activity or member.state
    if process.state is State.RUNNING and known:
        state = Text(known, "red" if member.is_dead else "green")
    incarnation = wording.incarnation(member.incarnation)
    return (process.name, state, incarnation, done(member, unit), str(process.restarts))


def done(member: Member, unit: str) -> str:
    """What a member has achieved: samples of a replica, of a shard its version in `unit`.

    A version is the whole run's; a replica begins to count anew with each incarnation.
    """
    if member.samples is not None:
        of_incarnation = " in this incarnation" if member.incarnation > 1 else ""
        return f"{wording.count(member.samples)} samples{of_incarnation}"
    return "" if member.version is None else f"{wording.count(member.version)} {unit}"
