"""The warm start: one replica alone first (DistBelief 4.1). Pure."""


def may_work(index: int, lowest: int | None, samples_done: int, warm_samples: int) -> bool:
    """Whether a replica gets work: all do after the warm start, before it the lowest living one."""
    return samples_done >= warm_samples or index == lowest
