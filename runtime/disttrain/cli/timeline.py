"""`disttrain timeline`."""

import json
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from disttrain.audit import reading, timeline
from disttrain.audit.timeline import Computed
from disttrain.cli import timeline_picture
from disttrain.cli.checkpoints import AsJson
from disttrain.cli.recorded_runs import RunPath
from disttrain.launch.errors import NotARunFolder

_TITLES = ("replica", "updates", "staleness", "most", "ms between updates")

Shard = Annotated[int, typer.Option(min=0, metavar="N", help="Whose log is read.")]
Updates = Annotated[
    int, typer.Option(min=1, metavar="N", help="How many of its updates are looked at.")
]
After = Annotated[
    int | None,
    typer.Option(
        min=0, metavar="N", help="Those after its Nth; otherwise those in the middle of the log."
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE.svg", dir_okay=False, help="Draw every gradient as a bar."),
]


def show(
    folder: RunPath,
    *,
    shard: Shard = 0,
    updates: Updates = 40,
    after: After = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Show when each gradient was computed and applied, and so how stale it was.

    Reads the log of one shard, which `spec.audit` keeps, while the job runs or afterwards. Exits
    with 2 when DIR holds no run with such a log.

    Example: disttrain timeline runs/digits --plot timeline.svg
    """
    found = _chosen(_all_of(folder, shard), updates, after)
    if plot is not None:
        try:
            plot.write_text(timeline_picture.draw(found, f"shard {shard}: gradients and updates"))
        except OSError as error:
            raise typer.BadParameter(f"{plot}: {error.strerror}", param_hint="--plot") from error
    if as_json:
        typer.echo(json.dumps([each._asdict() for each in found], indent=2))
    else:
        typer.echo("\n".join(lines(found)))


def lines(found: Sequence[Computed]) -> Iterator[str]:
    """A table with a row for each replica. Pure."""
    yield (
        f"updates {found[0].version:,} to {found[-1].version:,}, "
        f"{found[-1].applied_seconds - found[0].applied_seconds:.3g} s"
    )
    yield "  ".join(_TITLES)
    for replica in sorted({each.replica for each in found}):
        own = [each for each in found if each.replica == replica]
        ages = [each.staleness for each in own]
        gaps = [next_.applied_seconds - each.applied_seconds for each, next_ in pairwise(own)]
        between = f"{1000 * statistics.median(gaps):.1f}" if gaps else "-"
        row = (str(replica), str(len(own)), f"{statistics.fmean(ages):.2f}", str(max(ages)))
        yield "  ".join(
            text.rjust(len(title)) for text, title in zip((*row, between), _TITLES, strict=True)
        )


def _all_of(folder: Path, shard: int) -> Sequence[Computed]:
    evidence = reading.read(folder)
    if not evidence.shards.get(shard):
        known = ", ".join(str(index) for index in sorted(evidence.shards)) or "none"
        raise typer.BadParameter(
            f"no log of shard {shard}; there are {known}", param_hint="--shard"
        )
    found = timeline.timeline(evidence, shard)
    if not found:
        why = "a batch method adds gradients up and applies none of them by itself"
        if not evidence.batch_method:
            why = "none of it is left or there yet; spec.audit: full keeps all"
        raise NotARunFolder(f"the log of shard {shard} in {folder} tells of no update: {why}")
    return found


def _chosen(found: Sequence[Computed], updates: int, after: int | None) -> Sequence[Computed]:
    if after is None:
        first = max(0, (len(found) - updates) // 2)
        return found[first : first + updates]
    chosen = [each for each in found if each.version > after][:updates]
    if not chosen:
        message = f"{after}: the log ends with update {found[-1].version}"
        raise typer.BadParameter(message, param_hint="--after")
    return chosen
