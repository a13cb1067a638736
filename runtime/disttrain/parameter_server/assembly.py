"""Puts a shard together from what the manifest says: one kind of shard for each strategy."""

from disttrain.holder.restoring import MakeValues
from disttrain.holder.values import Values
from disttrain.job.batch_optimizer import ConjugateGradient, GradientDescent, Lbfgs
from disttrain.job.downpour import Downpour
from disttrain.job.sandblaster import Sandblaster
from disttrain.job.spec import Spec
from disttrain.job.update_rule import UpdateRule
from disttrain.parameter_server import batch_values, update_rules
from disttrain.parameter_server.batch_shard import Reload, SandblasterShard
from disttrain.parameter_server.downpour_shard import DownpourShard
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.shard import Shard
from disttrain.parameter_server.state import ShardState
from disttrain.parameter_server.warm_started_shard import WarmStartedShard

_METHODS = frozenset(kind.name for kind in (Lbfgs, ConjugateGradient, GradientDescent))


def build(state: ShardState, config: UpdateRule, records: Records) -> DownpourShard:
    """A shard without values; see `Shard.configure`."""
    return DownpourShard(state, update_rules.rule_for(config), records)


def build_for(spec: Spec, state: ShardState, records: Records, reload: Reload) -> Shard:
    """The shard of a job's strategy, without values."""
    strategy = spec.strategy.rule
    match strategy:
        case Downpour():
            return build(state, strategy.optimizer.rule, records)
        case Sandblaster():
            batch = SandblasterShard(state, records, reload, replicas=spec.replicas.count)
            if strategy.warm_start is None:
                return batch
            first = build(state, strategy.warm_start.rule.optimizer.rule, records)
            return WarmStartedShard(first, batch)


def makers(strategy: Downpour | Sandblaster) -> dict[str, MakeValues]:
    """How room is made for what a checkpoint holds, by its update rule; the job's own comes first.

    Of another batch method the model's values are taken, and no state.
    """
    match strategy:
        case Downpour():
            rule = strategy.optimizer.rule
            return {rule.name: with_state(rule.kept)}
        case Sandblaster():
            own = {strategy.optimizer.rule.name: batch_values.make}
            first = {} if strategy.warm_start is None else makers(strategy.warm_start.rule)
            return own | first | dict.fromkeys(_METHODS - own.keys(), batch_values.make_of_model)


def makers_of_method(strategy: Downpour | Sandblaster) -> dict[str, MakeValues]:
    """The same for who is not in the warm start any more, and takes no state of it."""
    found = makers(strategy)
    if isinstance(strategy, Downpour) or strategy.warm_start is None:
        return found
    return found | dict.fromkeys(makers(strategy.warm_start.rule), batch_values.make_of_model)


def with_state(names: tuple[str, ...]) -> MakeValues:
    """Room for an update rule's state vectors, too."""
    return lambda share, _: Values(share, dict.fromkeys(names, 0.0))
