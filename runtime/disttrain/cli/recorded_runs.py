"""Commands on what a run has recorded: `disttrain audit` and `replay`."""

from pathlib import Path
from typing import Annotated

import typer

from disttrain.audit import audit as promises
from disttrain.audit import reading
from disttrain.cli.checkpoints import AsJson
from disttrain.launch.exit_code import ExitCode
from disttrain.replay import outcome

RunPath = Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of a run.")]


Ledgers = Annotated[
    list[Path] | None,
    typer.Option(metavar="DIR", help="Output folder of a joiner of the run; may be repeated."),
]


def audit(folder: RunPath, ledger: Ledgers = None, *, as_json: AsJson = False) -> None:
    """Check the promises of the design from a run's own logs, and say what held.

    Reads the ledgers of all processes, the journal, the summary and the checkpoints. A replica of
    `disttrain join` has its ledger in its own output folder; without it each check that compares
    ledgers of replicas says so. Exits with 0
    when nothing was violated, 1 when something was or the logs lack records, 2 when DIR holds no
    run with ledgers.

    Example: disttrain audit runs/digits
    """
    evidence = reading.read(folder, ledger or ())
    findings = promises.audit(evidence)
    shown = promises.to_json if as_json else promises.text
    typer.echo(shown(findings, running=evidence.is_running), nl=False)
    raise typer.Exit(ExitCode.COMPLETE if promises.is_clean(findings) else ExitCode.FAILED)


ToUpdate = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Stop when every shard has applied N updates."),
]
Serial = Annotated[
    bool,
    typer.Option(
        "--serial", help="Also train on the same samples in the same order without staleness."
    ),
]


def replay(
    folder: RunPath, to_update: ToUpdate = None, *, serial: Serial = False, as_json: AsJson = False
) -> None:
    """Reproduce an asynchronous run bit for bit, and say what asynchrony did.

    The run must have been made with spec.record: true, and its shards must have lived through it.
    Runs the task's code of today. Exits with 0 when everything is the same to the bit, 1 when
    something differs or the run cannot be replayed, 2 when DIR holds no run.

    Example: disttrain replay runs/digits --serial
    """
    found = outcome.replay(folder, to_update=to_update, serial=serial)
    shown = outcome.to_json if as_json else outcome.text
    typer.echo(shown(found), nl=False)
    raise typer.Exit(ExitCode.COMPLETE if found.is_same else ExitCode.FAILED)
