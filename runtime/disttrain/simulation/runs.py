"""Which run simulates a strategy."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from pydantic.alias_generators import to_camel

from disttrain.job.strategies.sandblaster import Sandblaster
from disttrain.simulation.batch_run import SimulatedBatchRun
from disttrain.simulation.course import Course
from disttrain.simulation.errors import NotSimulated
from disttrain.simulation.machines import Machines
from disttrain.simulation.run import SimulatedRun
from disttrain.simulation.setting import Setting

MOST_IN_THREADS = 512
"""Replicas that each have their model here, and three threads."""
AnyRun: TypeAlias = SimulatedRun | SimulatedBatchRun


def maker(setting: Setting, machines: Machines, evaluate_every: int) -> Callable[[int], AnyRun]:
    """Makes runs of so many replicas. `evaluate_every`: samples between two evaluations.

    Raises NotSimulated.
    """
    if not _is_of_batches(setting):
        return lambda replicas: SimulatedRun(setting, machines, replicas, evaluate_every)
    # With a limit of seconds more replicas go further than those before.
    shared = None if setting.spec.stop.seconds else Course(setting)
    return lambda replicas: SimulatedBatchRun(
        setting, machines, replicas, evaluate_every, shared or Course(setting)
    )


def require_room(setting: Setting, counts: Sequence[int]) -> None:
    """Raises NotSimulated for more replicas than can be simulated of this strategy."""
    if max(counts) > MOST_IN_THREADS and not _is_of_batches(setting):
        name = to_camel(setting.spec.strategy.rule.name)
        message = (
            f"--replicas: {max(counts)} of strategy.{name} are too many; each has its "
            f"model and threads here, so take at most {MOST_IN_THREADS}"
        )
        raise NotSimulated(message)


def _is_of_batches(setting: Setting) -> bool:
    return isinstance(setting.spec.strategy.rule, Sandblaster)
