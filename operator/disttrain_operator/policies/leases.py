"""Who looks after a scope: the operator that holds its Lease; another waits. Pure.

Clocks of other machines do not count: a Lease is free once it has not changed for its time.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from disttrain.job.cluster_names import MANAGED_BY_OPERATOR
from disttrain_operator import times, untrusted
from disttrain_operator.kinds import Kind

RENEW_SECONDS: Final = 5.0
"""Between two renewals."""
LAST_SECONDS: Final = 20
"""For so long a Lease is held by somebody who does not renew it."""

LONGEST_SECONDS: Final = 60
"""No Lease holds for longer than this, whatever stands in it: whoever may write one could
otherwise keep its jobs from everybody for ever."""

WHOLE_CLUSTER: Final = "default"
"""The namespace of the Lease for all namespaces: every cluster has it, and lets it be written."""

_NAME: Final = "disttrain-operator"


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A Lease as it was seen."""

    holder: str
    """Empty: it was given back."""
    version: str
    seconds: float
    """For which it is held without being renewed."""
    since: float
    """Of a steady clock, in seconds: when this version of it was seen first."""


def name(manager: str) -> str:
    """The name of the Lease of those who look after jobs with this `managedBy`."""
    if manager == MANAGED_BY_OPERATOR:
        return _NAME
    return f"{_NAME}-{re.sub('[^a-z0-9]+', '-', manager.lower()).strip('-')}"


def seen(before: ObservedLease | None, body: dict[str, Any], now: float) -> ObservedLease:
    """A Lease as it is, with what was seen of it before telling its age."""
    version = str(untrusted.mapping(body, "metadata").get("resourceVersion"))
    if before is not None and before.version == version:
        return before
    spec = untrusted.mapping(body, "spec")
    told = untrusted.number(spec.get("leaseDurationSeconds")) or LAST_SECONDS
    seconds = float(max(1, min(told, LONGEST_SECONDS)))
    return ObservedLease(str(spec.get("holderIdentity") or ""), version, seconds, now)


def is_live(lease: ObservedLease, now: float) -> bool:
    return lease.holder != "" and now - lease.since < lease.seconds


def spec(holder: str, now: datetime) -> dict[str, Any]:
    """What is written by who takes or renews a Lease; without a holder by who gives it back."""
    return {
        "holderIdentity": holder,
        "leaseDurationSeconds": LAST_SECONDS if holder else 1,
        "renewTime": times.precise(now),
    }


def body(namespace: str, lease: str, holder: str, now: datetime) -> dict[str, Any]:
    return {
        **Kind.Lease.header,
        "metadata": {"namespace": namespace, "name": lease},
        "spec": spec(holder, now),
    }
