"""Which strategies there are, and those of a job one after another."""

from typing import Any, Protocol

from disttrain.coordinator import settings
from disttrain.coordinator.decisions.turn import CoordinatorSide
from disttrain.coordinator.settings import Settings
from disttrain.coordinator.strategies.batch.side import BatchMethod
from disttrain.coordinator.strategies.downpour import Asynchronous
from disttrain.job import defaults
from disttrain.job.downpour import Downpour
from disttrain.job.sandblaster import Sandblaster
from disttrain.job.spec import Spec


class _Kind(Protocol):
    """A strategy before it is known what a manifest says of it."""

    def kept(self, rule: Any) -> tuple[str, ...]:
        """Names of the vectors that holders keep beside what is trained."""

    def of(self, rule: Any, common: Settings) -> CoordinatorSide:
        """The strategy as the manifest has it, with what all strategies have in common."""


_KINDS: dict[type[object], _Kind] = {Downpour: Asynchronous, Sandblaster: BatchMethod}


def stages(spec: Spec, checkpoint_uri: str = "") -> tuple[CoordinatorSide, ...]:
    """A job's strategies one after another, each with its settings.

    Holders keep the vectors of all of them from the beginning. `checkpoint_uri` is where
    checkpoints really are; empty: where the manifest says.
    """
    found = [(stage, stage.strategy.rule) for stage in defaults.stages(spec)]
    kept = tuple(name for _, rule in found for name in _KINDS[type(rule)].kept(rule))
    uri = checkpoint_uri or spec.checkpoint.uri
    return tuple(
        _KINDS[type(rule)].of(rule, settings.from_spec(stage, spec, kept, uri))
        for stage, rule in found
    )
