"""When each gradient of an asynchronous run was computed, as one shard's log tells it. Pure.

What PP-ASGD (Sato et al. 2017) draws as its figure 1: gradients that are computed side by side,
and updates that happen meanwhile. As many of those as happen, so stale is a gradient.
"""

from collections.abc import Sequence
from typing import NamedTuple

from disttrain.audit.evidence import Evidence
from disttrain.parameter_server.ledger import Kind

_NS = 1e-9


class Computed(NamedTuple):
    """One gradient, or the difference that several local steps made."""

    replica: int
    version: int
    """Of the shard, once it had applied this one."""
    staleness: int
    """Updates of others since `read_seconds`."""
    read_seconds: float
    """Since the shard's log began: when the values came to be that it was computed with."""
    applied_seconds: float
    """When the shard had applied it."""


def timeline(evidence: Evidence, shard: int) -> Sequence[Computed]:
    """The updates of the shard's latest incarnation, in order of their versions.

    Those are left out whose values are of an earlier incarnation, or were folded in the log.
    Raises KeyError if there is no such shard.
    """
    log = evidence.shards[shard][-1]
    pushed = log.of(Kind.PUSHED)
    began = int(log.records["time_ns"].min(initial=2**63 - 1))
    restored = log.of(Kind.RESTORED)["version"].tolist()
    # The values that it began with were there before anything else.
    came = {restored[-1] if restored else 0: began} | dict(
        zip(pushed["version"].tolist(), pushed["time_ns"].tolist(), strict=True)
    )
    return [
        Computed(
            replica=int(each["sender"]),
            version=int(each["version"]),
            staleness=int(each["staleness"]),
            read_seconds=(came[int(each["read_version"])] - began) * _NS,
            applied_seconds=(int(each["time_ns"]) - began) * _NS,
        )
        for each in pushed
        if int(each["read_version"]) in came and int(each["read_incarnation"]) == log.incarnation
    ]
