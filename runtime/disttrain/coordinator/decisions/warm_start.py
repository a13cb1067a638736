"""The warm start: one replica alone first (DistBelief 4.1). Pure."""

from collections.abc import Sequence


def may_work(index: int, live: Sequence[int], samples_done: int, warm_samples: int) -> bool:
    """Whether a replica gets work: all do after the warm start, before it the lowest living one."""
    return samples_done >= warm_samples or (bool(live) and index == min(live))
