"""What a user says of how layers are divided, by their names."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from disttrain.parallel.partitioned import CannotPartition
from disttrain.parallel.windows import Grid

Way = str | int
"""How a layer is divided: one of `WAYS`. A number: it is not, and lies whole on that partition;
`whole`: on the first one, and of a container all in one. Rows and columns, as `1x2`: over a grid of
the first partitions, and the others have nothing of it."""
WAYS: Sequence[str] = ("spatial", "features", "whole")


@dataclass(frozen=True, slots=True)
class Ways:
    """Of a container, they are of all that is in it."""

    given: Mapping[str, Way]
    partitions: int

    def check(self, model: nn.Module) -> None:
        """Raises CannotPartition for a layer that there is not, or a way."""
        known = [name for name, _ in model.named_modules() if name]
        for name, way in self.given.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise CannotPartition(f"partitioning.{name}: the model has no such layer{hint}")
            grid = _grid(way)
            if grid is not None:
                self._check_grid(name, grid)
            elif isinstance(way, int) and not isinstance(way, bool):
                self._check_place(name, way)
            elif way not in WAYS:
                ways = ", ".join(WAYS)
                message = (
                    f"partitioning.{name}: {way!r} is none of {ways}, no grid as 1x2, and no "
                    "partition"
                )
                raise CannotPartition(message)

    def _check_grid(self, name: str, grid: Grid) -> None:
        if grid.size <= self.partitions:
            return
        message = (
            f"partitioning.{name}: {grid.rows}x{grid.columns} are {grid.size} partitions, and "
            f"there are {self.partitions}; take a smaller grid"
        )
        raise CannotPartition(message)

    def _check_place(self, name: str, place: int) -> None:
        if 0 <= place < self.partitions:
            return
        last = self.partitions - 1
        message = f"wholeOn.{name}: there is no partition {place}; the last one is {last}"
        raise CannotPartition(message)

    def of(self, name: str) -> Way | None:
        """Of a layer, or of the nearest container that has one."""
        return next((self.given[each] for each in _upwards(name) if each in self.given), None)

    def grid_of(self, name: str) -> Grid | None:
        """The grid that a layer, or the nearest container with a way, has for itself."""
        return _grid(self.of(name))

    def require_none(self, name: str) -> None:
        """Raises CannotPartition for a way of its own; one that its container has is none."""
        if name in self.given:
            message = (
                f"partitioning.{name}: {self.given[name]} is not possible; it goes by what comes "
                "before it"
            )
            raise CannotPartition(message)

    def require(self, name: str, *possible: Way, grid: bool = False) -> None:
        """Raises CannotPartition for any other. `grid`: whether it may have one of its own."""
        way = self.of(name)
        if way not in {None, *possible} and not (grid and _grid(way)):
            raise CannotPartition(f"partitioning.{name}: {way} is not possible for this layer")


def _grid(way: Way | None) -> Grid | None:
    return Grid.of_text(way) if isinstance(way, str) else None


def _upwards(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]
