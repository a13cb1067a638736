"""What the processes of a replica agree on, in threads of the test."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from builders import partitions
from builders.divided_models import Group
from builders.ranks import thread_groups
from disttrain.replica.agreement import Together

T = TypeVar("T")
COUNT: Final = 3
PATIENCE_SECONDS: Final = 60.0


def in_all(work: Callable[[Together], T], count: int = COUNT) -> list[T]:
    """What each process's work gives."""
    meeting = partitions.Meeting(count)
    groups = [
        Group(group, partitions.Thread(rank, meeting))
        for rank, group in enumerate(thread_groups(count))
    ]
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, map(Together, groups), timeout=PATIENCE_SECONDS))


def rank_of(one: Together) -> int:
    return one._rank
