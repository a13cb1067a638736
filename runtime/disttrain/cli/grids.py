"""Partitions and grids of them, as options name them. Pure."""

import re

import typer

from disttrain.job.roles import MOST_PARTITIONS, Replicas
from disttrain.parallel.windows import Grid, square_grid

_MOST_PLANNED = 256


def planned(text: str) -> tuple[Grid, ...]:
    """Of "1,4" or "2x3" (--partitions), the fewest partitions first. Raises typer.BadParameter."""
    found = {}
    for part in map(str.strip, text.split(",")):
        is_number = re.fullmatch("[1-9][0-9]{0,3}", part)
        grid = square_grid(int(part)) if is_number else Grid.of_text(part)
        if grid is None:
            message = (
                f"--partitions: {part[:40]!r} is neither a number of partitions nor a grid; write "
                "1,2,4 or 1x2,2x2"
            )
            raise typer.BadParameter(message)
        if grid.size > _MOST_PLANNED:
            message = f"--partitions: {part} are more than {_MOST_PLANNED}"
            raise typer.BadParameter(message)
        found[grid] = grid.size
    return tuple(sorted(found, key=found.__getitem__))


def processes(count: int | None, grid: str | None) -> Replicas:
    """Of --partitions and --grid, which have to agree. Raises typer.BadParameter."""
    if grid is None:
        return Replicas(given_partitions=count)
    found = Grid.of_text(grid)
    if found is None:
        message = f"--grid: must be rows and columns, as 2x3, got {grid[:40]!r}"
        raise typer.BadParameter(message)
    if found.size != (count or found.size):
        message = f"--grid: must be of {count} (--partitions), got {grid}"
        raise typer.BadParameter(message)
    if found.size > MOST_PARTITIONS:
        message = f"--grid: must be of at most {MOST_PARTITIONS} partitions, got {grid}"
        raise typer.BadParameter(message)
    return Replicas(grid=grid)
