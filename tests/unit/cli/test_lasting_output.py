"""Standard output that cannot be written stops no work."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import typer

from disttrain.cli import live
from disttrain.cli.display import LiveDisplay
from disttrain.cli.live import Display, PlainDisplay
from disttrain.job.run_status import RunStatus


@contextmanager
def standard_output_on_a_full_disk() -> Iterator[None]:
    """Ends with an error if something is held back."""
    with Path("/dev/full").open("w") as full, redirect_stdout(full):
        yield


@pytest.mark.parametrize("display", [PlainDisplay, LiveDisplay])
def test_a_display_on_a_full_disk_is_lost_once(display: type[PlainDisplay | LiveDisplay]) -> None:
    lost: list[OSError] = []
    with standard_output_on_a_full_disk(), live.lasting_output(lost.append):
        typer.echo("digits: output in runs/digits")
        shown: Display
        with display(lambda: RunStatus(phase="Running")) as shown:
            for _ in range(3):
                shown.event("replica-0: killed by SIGKILL")
                shown.tick([])
        typer.echo("Complete")
    assert [error.errno for error in lost] == [errno.ENOSPC]


def test_both_streams_may_be_lost() -> None:
    def say(error: OSError) -> None:
        typer.echo(f"lost: {error}", err=True)

    read, write = os.pipe()
    os.close(read)
    with (
        os.fdopen(write, "w") as closed,
        redirect_stderr(closed),
        standard_output_on_a_full_disk(),
        live.lasting_output(say),
    ):
        typer.echo("digits: output in runs/digits")
        typer.echo("these fields mean nothing", err=True)


def test_what_can_be_written_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    lost: list[OSError] = []
    with live.lasting_output(lost.append):
        typer.echo("digits: output in runs/digits")
        typer.echo("these fields mean nothing", err=True)
    shown = capsys.readouterr()
    assert shown.out == "digits: output in runs/digits\n"
    assert shown.err == "these fields mean nothing\n"
    assert lost == []
