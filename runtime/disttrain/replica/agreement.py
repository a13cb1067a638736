"""What the processes of a replica decide together, so that each takes the same steps.

Each has a part of the parameters, and speaks with the shards that have it. All take every step with
the same code. What depends on time or on a part, such as whether fetched values are here, or the
norm of a gradient, is agreed on. Belongs to the compute thread of each process.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import torch

from disttrain.coordinator.protocol.fields import START, Position
from disttrain.groups.steps import Collective


class Act(IntEnum):
    """What the first process lets all do, in a replica whose processes have parts of the model."""

    FORWARD = 0
    BACKWARD = 1
    LOAD = 2
    """The values of a file, beside those that are trained."""
    GATHER = 3
    """One tensor, by its number."""
    UPLOAD = 4
    ASK_FIRST = 5
    """The shards for the values to begin with."""
    BEGIN = 6
    """To train with them."""
    BEGIN_STEP = 7
    END_STEP = 8
    FLUSH = 9
    START_OVER = 10
    FETCH_NOW = 11
    FETCH_AGAIN = 12
    MEASURE = 13
    """What the shards have, while the steps go on."""
    MEASURED = 14
    BETWEEN_STEPS = 15
    FINISH_MEASURING = 16
    ASK_TRIAL = 17
    """For the point of an evaluation."""
    TAKE_TRIAL = 18
    BEGIN_GROUP = 19
    """Of portions."""
    ABANDON_GROUP = 20
    SEND_GROUP = 21
    GROUP_SENT = 22
    """Wait until the shards have the oldest one that is on its way."""
    BATCH = 23
    """What ranks with FSDP2 compute next, each its part of it."""
    EVALUATE = 24
    """One batch of an evaluation, by ranks with FSDP2."""


Tell = Callable[..., None]
"""Called with an act and up to `steps.ORDER_WORDS` less one numbers for it."""


def nobody(act: Act, *words: int) -> None:
    """There is no other process."""


class Answered(NamedTuple):
    """How far all shards have answered one process's pushes: of a replica all make the same."""

    position: Position = START
    samples: int = 0
    pushes: int = 0
    was_too_stale: bool = False
    """The latest push was: nothing more is pushed, and no position reached, until they go on."""


class Agreement:
    """Of a process that is alone: what it says holds."""

    def judge(self, sums: Sequence[float], answered: Answered) -> list[float]:
        """The sums of what each says of a step's gradient, beside which it tells its answers."""
        del answered
        return list(sums)

    def tell(self, answered: Answered) -> None:
        """Let all know what this process's shards have answered."""

    def answers(self, own: Answered) -> Answered:
        """Those of the process that has the fewest, as told last; any thread may ask."""
        return own

    def all(self, has: bool) -> bool:  # noqa: FBT001
        """Whether it holds in every process."""
        return has

    def any(self, has: bool) -> bool:  # noqa: FBT001
        """Whether it holds in one of them."""
        return has

    def least(self, number: int) -> int:
        return number

    def put_together(self, of_places: Mapping[int, int], places: int) -> tuple[int, ...]:
        """One number for each place, of which each process knows some; 0 if nobody does."""
        return tuple(of_places.get(place, 0) for place in range(places))


class Together(Agreement):
    """Of the processes of a divided replica. Raises as `Collective.sum`."""

    def __init__(self, group: Collective) -> None:
        self._group = group
        self._answered = Answered()
        self._rank, self._size = group.peers.rank, group.peers.size

    def judge(self, sums: Sequence[float], answered: Answered) -> list[float]:
        # Every number below 2^53 is exact; a sum with zeros is the number.
        table = torch.zeros(len(sums) + self._size * _WORDS, dtype=torch.float64)
        table[: len(sums)] = torch.tensor(sums, dtype=torch.float64)
        first = len(sums) + self._rank * _WORDS
        table[first : first + _WORDS] = torch.tensor(_words(answered), dtype=torch.float64)
        self._group.all_reduce(table)
        told = table[len(sums) :].view(self._size, _WORDS).long().tolist()
        self._note(told)
        return table[: len(sums)].tolist()

    def tell(self, answered: Answered) -> None:
        self._note(self._gathered(_words(answered)))

    def answers(self, own: Answered) -> Answered:
        del own
        return self._answered

    def all(self, has: bool) -> bool:  # noqa: FBT001
        return sum(self._group.sum((int(has),))) == self._size

    def any(self, has: bool) -> bool:  # noqa: FBT001
        return sum(self._group.sum((int(has),))) > 0

    def least(self, number: int) -> int:
        return min(each for (each,) in self._gathered((number,)))

    def put_together(self, of_places: Mapping[int, int], places: int) -> tuple[int, ...]:
        return tuple(self._group.sum([of_places.get(place, 0) for place in range(places)]))

    def _gathered(self, words: Sequence[int]) -> list[list[int]]:
        table = [0] * (len(words) * self._size)
        table[self._rank * len(words) : (self._rank + 1) * len(words)] = words
        found = self._group.sum(table)
        return [found[at : at + len(words)] for at in range(0, len(found), len(words))]

    def _note(self, told: Sequence[Sequence[int]]) -> None:
        lease, offset, samples, pushes, _ = min(map(tuple, told))
        self._answered = Answered(
            Position(lease=lease, offset=offset), samples, pushes, any(each[-1] for each in told)
        )


_WORDS = 5


def _words(answered: Answered) -> tuple[int, ...]:
    position = answered.position
    return (
        position.lease,
        position.offset,
        answered.samples,
        answered.pushes,
        int(answered.was_too_stale),
    )


ALONE = Agreement()
