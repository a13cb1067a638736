"""What a user says of how layers are divided, by their names."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

from disttrain.parallel.partitioned import CannotPartition

Way = Literal["spatial", "features", "whole"] | int
"""How a layer is divided. A number: it is not, and lies whole on that partition; `whole`: on the
first one, and of a container all in one."""
WAYS: Sequence[Way] = ("spatial", "features", "whole")


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
            if isinstance(way, int) and not isinstance(way, bool):
                self._check_place(name, way)
            elif way not in WAYS:
                ways = ", ".join(map(str, WAYS))
                message = f"partitioning.{name}: {way!r} is none of {ways}, and no partition"
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

    def require_none(self, name: str) -> None:
        """Raises CannotPartition for a way of its own; one that its container has is none."""
        if name in self.given:
            message = (
                f"partitioning.{name}: {self.given[name]} is not possible; it goes by what comes "
                "before it"
            )
            raise CannotPartition(message)

    def require(self, name: str, possible: Way | None) -> None:
        """Raises CannotPartition for any other."""
        way = self.of(name)
        if way not in {None, possible}:
            raise CannotPartition(f"partitioning.{name}: {way} is not possible for this layer")


def _upwards(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]
