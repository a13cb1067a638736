"""The coordinator's side of each strategy, one module each; nothing else knows which there are."""

from disttrain.coordinator import settings
from disttrain.coordinator.decisions.transaction import CoordinatorSide
from disttrain.job import defaults, subclasses
from disttrain.job.spec import Spec

_SIDES = {side.of: side for side in subclasses.found(__name__, CoordinatorSide)}


def stages(spec: Spec, checkpoint_uri: str = "") -> tuple[CoordinatorSide, ...]:
    """A job's strategies one after another, each with its settings.

    Holders keep the vectors of all of them from the beginning. `checkpoint_uri` is where
    checkpoints really are; empty: where the manifest says.
    """
    found = [(stage, stage.strategy.rule) for stage in defaults.stages(spec)]
    kept = tuple(name for _, rule in found for name in _SIDES[type(rule)].kept(rule))
    uri = checkpoint_uri or spec.checkpoint.uri
    return tuple(
        _SIDES[type(rule)].made(rule, settings.from_spec(stage, spec, kept, uri))
        for stage, rule in found
    )
