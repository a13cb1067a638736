"""A group in step: the first process says what comes, and nobody begins before all are there.

Both are one sum over the members: whoever has the result knows what the first process says, that
everybody has come, and whether somebody wants to leave. The others add zeros to its words.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress

from torch import Tensor

from disttrain.parallel.communicator import Communicator

ORDER_WORDS = 8
"""Numbers that the first process may say of a step, beside its own number."""
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

    @abstractmethod
    def all_reduce(self, tensor: Tensor) -> None:
        """Make each process's tensor the sum of all, with the same bits everywhere. As `sum`."""

    @abstractmethod
    def all_gather(self, into: Tensor, own: Tensor) -> None:
        """Fill a tensor with each process's own one, of equal sizes, in their order. As `sum`."""

    @property
    def peers(self) -> Communicator:
        """The same members as partitions of a model, whose calls raise as `sum`."""
        message = f"{type(self).__name__} carries no tensors from one member to another"
        raise NotImplementedError(message)

    @abstractmethod
    def broadcast(self, tensor: Tensor) -> None:
        """Make each process's tensor the first one's, bit for bit. As `sum`."""


class Leader:
    """The first process of a group. Belongs to the thread that computes."""

    def __init__(self, group: Collective) -> None:
        self.group = group
        self._step = 0
        self.others_leave = False
        """Whether another process was told to leave: the whole group is to do so."""

    def before_step(self, *order: int) -> None:
        """Announce a step, and wait until all are there. Raises as `Collective.sum`.

        `order`: up to `ORDER_WORDS` numbers that tell the others what to do in it.
        """
        self._step += 1
        _, _, leaving, *_ = self.group.sum((self._step, _GOES_ON, 0, *_words(order)))
        self.others_leave = leaving > 0

    def end(self, exit_code: int) -> None:
        """Tell the others with which exit code this incarnation ends, as far as they hear it.

        Nothing keeps this process from ending so itself, such as that it was told to end at once.
        """
        with suppress(Exception):
            self.group.sum((self._step, 1 + exit_code, 0, *_words()), _END_SECONDS)


def follow(
    group: Collective,
    step: Callable[[Sequence[int]], None],
    leaves: Callable[[], bool] = lambda: False,
) -> int:
    """Take part in what the first process announces; the exit code with which it ends.

    `step` is this process's part of a step, by the order for it; `leaves` is whether it was told
    to leave. Raises as `Collective.sum`.
    """
    try:
        follow_until(group, step, lambda _: False, leaves)
    except _Ends as ends:
        return ends.exit_code
    raise AssertionError(group)


def follow_until(
    group: Collective,
    step: Callable[[Sequence[int]], None],
    is_last: Callable[[Sequence[int]], bool],
    leaves: Callable[[], bool] = lambda: False,
) -> None:
    """The same within a step, until an order that is the last one of it. Raises as `follow`."""
    while True:
        _, ending, _, *order = group.sum((0, _GOES_ON, int(leaves()), *_words()))
        if ending != _GOES_ON:
            raise _Ends(ending - 1)
        if is_last(order):
            return
        step(order)


class _Ends(Exception):
    """The first process ends."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


def _words(order: Sequence[int] = ()) -> tuple[int, ...]:
    """An order in as many words as each has."""
    return (*order, *[0] * (ORDER_WORDS - len(order)))
