"""Puts a shard together from what the manifest says: one kind of shard for each strategy."""

from disttrain.holder.restoring import MakeValues
from disttrain.holder.values import Values
from disttrain.job.batch_optimizer import ConjugateGradient, GradientDescent, Lbfgs
from disttrain.job.spec import Spec
from disttrain.job.strategies.downpour import Downpour
from disttrain.job.strategy_kind import StrategyKind
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
    if isinstance(strategy, Downpour):
        return build(state, strategy.optimizer.rule, records)
    batch = SandblasterShard(state, records, reload, replicas=spec.replicas.count)
    first = strategy.first_stage
    if first is None:
        return batch
    assert isinstance(first.rule, Downpour)  # noqa: S101 - for ourselves.
    return WarmStartedShard(build(state, first.rule.optimizer.rule, records), batch)


def makers(strategy: StrategyKind) -> dict[str, MakeValues]:
    """How room is made for what a checkpoint holds, by its update rule; the job's own comes first.

    Of another batch method the model's values are taken, and no state.
    """
    if isinstance(strategy, Downpour):
        rule = strategy.optimizer.rule
        return {rule.name: with_state(rule.kept)}
    own = {strategy.update_rule: batch_values.make}
    first = {} if strategy.first_stage is None else makers(strategy.first_stage.rule)
    return own | first | dict.fromkeys(_METHODS - own.keys(), batch_values.make_of_model)


def makers_of_method(strategy: StrategyKind) -> dict[str, MakeValues]:
    """The same for who is not in the warm start any more, and takes no state of it."""
    found = makers(strategy)
    if strategy.first_stage is None:
        return found
    return found | dict.fromkeys(makers(strategy.first_stage.rule), batch_values.make_of_model)


def with_state(names: tuple[str, ...]) -> MakeValues:
    """Room for an update rule's state vectors, too."""
    return lambda share, _: Values(share, dict.fromkeys(names, 0.0))
