"""The deaths of a pod over several sights of it: each sight tells the last one alone. Pure."""

from dataclasses import replace

from disttrain_operator.observed.records import PodRecord

MOST = 10
"""Deaths that are kept of a pod: a status tells no more of them."""


def remembering(old: PodRecord | None, new: PodRecord) -> PodRecord:
    """The new sight of a pod, with the deaths that earlier sights told of."""
    if old is None or old.uid != new.uid or old.death is None:
        return new
    earlier = old.earlier if old.death == new.death else (*old.earlier, old.death)
    return replace(new, earlier=earlier[-MOST:]) if earlier else new
