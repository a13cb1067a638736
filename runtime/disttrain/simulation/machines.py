"""What a simulation knows of machines and of the network between them. Pure."""

import math
import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from disttrain.simulation.errors import WrongMachines
from disttrain.transport.in_memory import Link

SHARD_BYTES_PER_SECOND = 1.4e9
"""What a shard applies or gives out: 0.7 CPU seconds per GB, as docs/benchmarks.md measures."""

_UNITS = {"k": 1e3, "M": 1e6, "G": 1e9}
_BANDWIDTH = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)([kMG])(b|B)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_LATENCY = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,12})?(?:e-?[0-9]{1,2})?)(us|ms|s)?")
_MOST_LATENCY_SECONDS = 1e3
_STRAGGLER = re.compile(r"([0-9]{1,6})=([0-9]{1,6}(?:\.[0-9]{1,6})?)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Machines:
    """Each replica and each shard has one of its own."""

    step_seconds: float
    """That a replica computes for a whole batch; a smaller one takes as much less."""
    jitter: float = 0.0
    """Standard deviation of a step's seconds, of their mean."""
    slower: Mapping[int, float] = field(default_factory=dict)
    """By index of a replica: how many times as long its steps take."""
    bytes_per_second: float | None = None
    """Each way between a machine and all others; None: the network holds up nothing."""
    latency_seconds: float = 0.0001
    """That a message is on its way, beside the time that its bytes take."""
    evenly: bool = False
    """Replicas begin one after the other, evenly over one step. Then, without jitter, each
    gradient is as stale as any other: one update for each other replica."""

    def new_link(self) -> Link | None:
        """Of one machine to all others; None: the network holds up nothing."""
        return None if self.bytes_per_second is None else Link(self.bytes_per_second)


class StepTimes:
    """How long the steps of one replica take; the same seed gives the same times."""

    def __init__(
        self, machines: Machines, replica: int, batch_size: int, seed: int, replicas: int = 1
    ) -> None:
        """`replica` is the index of one of `replicas`."""
        self._mean = machines.step_seconds * machines.slower.get(replica, 1.0) / batch_size
        self._later = machines.step_seconds * replica / replicas if machines.evenly else 0.0
        self._jitter = machines.jitter
        self._chance = random.Random(f"{seed} {replica}")

    def seconds(self, samples: int) -> float:
        """Of the next step, of so many samples."""
        factor = self._chance.gauss(1.0, self._jitter) if self._jitter else 1.0
        later, self._later = self._later, 0.0
        return later + samples * self._mean * max(0.1, factor)


def bandwidth(text: str) -> float:
    """Bytes per second of "1Gb" (bits) or "125MB" (bytes). Raises WrongMachines."""
    found = _BANDWIDTH.fullmatch(text)
    if found is None or not float(found[1]):
        message = (
            f"--bandwidth: {text[:40]!r} is no bandwidth; write 1Gb or 100Mb for bits per second, "
            "or 125MB for bytes, with up to 6 digits before and after the point"
        )
        raise WrongMachines(message)
    return float(found[1]) * _UNITS[found[2]] / (8 if found[3] == "b" else 1)


def latency(text: str) -> float:
    """Seconds of "50us", "0.05ms", "1s" or plain seconds. Raises WrongMachines."""
    found = _LATENCY.fullmatch(text)
    seconds = float(found[1]) * _SECONDS[found[2] or "s"] if found else math.inf
    if seconds > _MOST_LATENCY_SECONDS:
        message = (
            f"--latency: {text[:40]!r} is no time of at most {_MOST_LATENCY_SECONDS:g} s; write "
            "50us, 0.05ms or 0.00005 for seconds"
        )
        raise WrongMachines(message)
    return seconds


def stragglers(texts: Iterable[str], replicas: int) -> dict[int, float]:
    """Factors by index, of "3=4": replica 3 is four times slower. Raises WrongMachines."""
    found: dict[int, float] = {}
    for text in texts:
        matched = _STRAGGLER.fullmatch(text)
        if matched is None or not float(matched[2]):
            message = (
                f"--straggler: {text[:40]!r} is none; write 3=4 for a replica 3 whose steps take "
                "four times as long, with up to 6 digits before and after the point"
            )
            raise WrongMachines(message)
        if int(matched[1]) >= replicas:
            message = (
                f"--straggler: there is no replica {matched[1]} of {replicas}; they are counted "
                f"from 0, so name one of 0 to {replicas - 1}"
            )
            raise WrongMachines(message)
        if int(matched[1]) in found:
            message = f"--straggler: replica {int(matched[1])} is named twice; keep one of them"
            raise WrongMachines(message)
        found[int(matched[1])] = float(matched[2])
    return found


def replica_counts(text: str) -> tuple[int, ...]:
    """Of "1,4,16", sorted. Raises WrongMachines."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= MOST_REPLICAS for part in parts):
        message = (
            f"--replicas: {text[:40]!r} names no numbers of replicas; write 1,4,16 with numbers of "
            f"at least 1 and at most {MOST_REPLICAS}"
        )
        raise WrongMachines(message)
    return tuple(sorted({int(part) for part in parts}))


MOST_REPLICAS = 4096
"""As of a job."""
