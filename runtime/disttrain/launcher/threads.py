"""How the cores of one machine are shared out among the processes that compute. Pure."""

from dataclasses import dataclass

from disttrain.job.spec import Spec

CORES_PER_SHARD_CORE = 4
"""One core in four at most is set aside for shards, since they mostly wait."""


@dataclass(frozen=True, slots=True)
class Threads:
    """Compute threads of one process, by role."""

    shard: int
    replica: int


def share_out(spec: Spec, cores: int) -> Threads:
    """The threads of each shard and replica on a machine with so many cores.

    What the manifest says holds. Otherwise a shard has one thread, since one applies updates faster
    than memory delivers them, and the replicas divide the cores, each with at least one thread.
    """
    replicas = spec.replicas.count
    set_aside = min(spec.parameter_server.shards, cores // CORES_PER_SHARD_CORE)
    return Threads(
        shard=spec.parameter_server.threads or 1,
        replica=spec.replicas.threads or max(1, (cores - set_aside) // replicas),
    )
