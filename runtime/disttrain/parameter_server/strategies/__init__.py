"""The holder's side of each strategy, one module each; nothing else here knows which there are."""

from collections.abc import Mapping
from functools import partial

from disttrain.holder.restoring import MakeValues
from disttrain.holder.values import Values
from disttrain.job import defaults, subclasses
from disttrain.job.spec import Spec
from disttrain.parameter_server.holder_side import HolderSide, ShardState
from disttrain.parameter_server.records import Records
from disttrain.state.share import Share

_SIDES = {side.of: side for side in subclasses.found(__name__, HolderSide)}


def stages(spec: Spec, state: ShardState, records: Records) -> tuple[HolderSide, ...]:
    return tuple(side.made(stage, state, records) for stage, side in _of(spec))


def keeper_of_updates(spec: Spec) -> str | None:
    """A job's first update rule, if a shard's updates are of use to its next incarnation."""
    stage, side = _of(spec)[0]
    return stage.strategy.rule.update_rule if side.keeps_updates else None


def makers(spec: Spec, *, is_return: bool = False) -> dict[str, MakeValues]:
    """How room is made for what a checkpoint holds, by its update rule; the job's own comes first.

    Who returns to a checkpoint is in the last stage from then on: of one that an earlier stage has
    made it takes the model's values, and no state.
    """
    *earlier, (last, side) = _of(spec)
    own, name = side.kept_by(last), side.config_of(last).name
    found: dict[str, MakeValues] = {name: partial(side.room, own)}

    def of_model(share: Share, _description: Mapping[str, str]) -> Values:
        return side.room(own, share, {})

    for stage, before in earlier:
        room = partial(before.room, before.kept_by(stage))
        found[before.config_of(stage).name] = of_model if is_return else room
    return found | dict.fromkeys(side.takes_model_from - found.keys(), of_model)


def _of(spec: Spec) -> list[tuple[Spec, type[HolderSide]]]:
    return [(stage, _SIDES[type(stage.strategy.rule)]) for stage in defaults.stages(spec)]
