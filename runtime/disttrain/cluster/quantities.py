"""Kubernetes' quantities: `250m` cores, `128Mi` bytes. Pure."""

import re
from typing import Final

from disttrain.cluster.interface import Object

_FACTORS: Final = {
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
    "Ei": 2.0**60,
}
_QUANTITY: Final = re.compile(
    r"(?P<digits>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?P<suffix>[a-zA-Z]*)"
)


def number(quantity: str) -> float:
    """The value in cores or bytes. ValueError for a text that is none."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None or match["suffix"] not in _FACTORS:
        message = f"not a quantity: {quantity!r}"
        raise ValueError(message)
    return float(match["digits"]) * _FACTORS[match["suffix"]]


def total(pod_metrics: Object) -> Object:
    """CPU and memory of all containers of a pod, as numbers."""
    used = [each.get("usage") or {} for each in pod_metrics.get("containers") or []]
    return {name: sum(number(each.get(name, "0")) for each in used) for name in ("cpu", "memory")}


def cores(value: float) -> str:
    """Processor time as kubectl shows it."""
    return f"{value * 1000:.0f}m"


def mebibytes(value: float) -> str:
    """Memory as kubectl shows it."""
    return f"{value / 2**20:.0f}Mi"
