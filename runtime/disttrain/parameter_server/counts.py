"""How many pushes of a sender a shard has acknowledged, and how many of them are lost. Pure.

Acknowledged is what was applied completely and counted before its answer left. Lost is what was
acknowledged and is in the values no more. Whether the last answer before a shard's death arrived,
only the sender knows: if not, it sends the same push again, and then it is not lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from disttrain.parameter_server.deliveries import NOTHING, Delivered, SenderLife


@dataclass(frozen=True, slots=True)
class Count:
    """Of one life of a sender at one shard; numbers of 64 bits."""

    pushes: int = 0
    """Acknowledged, and in the values."""
    sequence: int = 0
    """Number of the last push that is over."""
    lost: int = 0
    """Acknowledged by any life of the shard, and in the values no more."""
    doubtful: int = 0
    """Number of the latest push among the lost: its sender may send it again. 0 is none."""


def after_push(count: Count, delivered: Delivered) -> Count:
    """One more push is in the values: `delivered` is what is known of its sender after it."""
    is_again = 0 < count.doubtful == delivered.sequence
    return Count(
        pushes=delivered.pushes,
        sequence=delivered.sequence,
        lost=count.lost - int(is_again),
        doubtful=count.doubtful if count.doubtful > delivered.sequence else 0,
    )


def after_rollback(count: Count, held: Delivered, *, may_regain: bool = True) -> Count:
    """A new life begins with values that hold `held`. Said again, it changes nothing.

    Values may come back that were lost: a life that found no newer checkpoint than N - 1, since N
    was not yet committed, is followed by one that begins with N. `may_regain` is False where
    `held` is no count of the same values as `count`.
    """
    lost = max(0, count.lost + count.pushes - held.pushes)
    last = max(count.doubtful, count.sequence)
    return Count(
        pushes=held.pushes,
        sequence=held.sequence,
        lost=lost if may_regain else max(lost, count.lost),
        # A doubtful push that the values hold is none.
        doubtful=last if last > held.sequence else 0,
    )


def rolled_back(
    counts: Mapping[SenderLife, Count],
    delivered: Mapping[SenderLife, Delivered],
    *,
    may_regain: bool = True,
) -> dict[SenderLife, Count]:
    """The counts of all senders after a rollback to a checkpoint's table."""
    return {
        life: after_rollback(count, delivered.get(life, NOTHING), may_regain=may_regain)
        for life, count in counts.items()
    }
