"""A group in step: the first process says what comes, and nobody begins before all are there.

Both are one sum over the members, to which only the first process adds anything: whoever has the
result knows its word, and that everybody has come.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress

_GOES_ON = 0
_END_SECONDS = 2.0
"""For the others to hear that the first process ends; they see it in any case."""


class Collective(ABC):
    """What a formed group can do. One call at a time, in all of its processes."""

    @abstractmethod
    def sum(self, values: Sequence[int], seconds: float | None = None) -> list[int]:
        """The sums of what each process gives, once all have.

        Raises GroupLost, also after `seconds`, and what ends the waits of this process; after
        either the group is not in step any more, and this raises GroupLost at once.
        """


class Leader:
    """The first process of a group. Belongs to the thread that computes."""

    def __init__(self, group: Collective) -> None:
        self._group = group
        self._step = 0

    def before_step(self) -> None:
        """Announce a step, and wait until all are there. Raises as `Collective.sum`."""
        self._step += 1
        self._group.sum((self._step, _GOES_ON))

    def end(self, exit_code: int) -> None:
        """Tell the others with which exit code this incarnation ends, as far as they hear it.

        Nothing keeps this process from ending so itself, such as that it was told to end at once.
        """
        with suppress(Exception):
            self._group.sum((self._step, 1 + exit_code), _END_SECONDS)


def follow(group: Collective, step: Callable[[int], None]) -> int:
    """Take part in what the first process announces; the exit code with which it ends.

    `step` is this process's part of a step, by its number. Raises as `Collective.sum`.
    """
    while True:
        number, ending = group.sum((0, _GOES_ON))
        if ending != _GOES_ON:
            return ending - 1
        step(number)
