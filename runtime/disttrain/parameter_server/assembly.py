"""Puts a shard together from what the manifest says: one kind of shard for each strategy."""

from collections.abc import Mapping

from disttrain.job.batch_optimizer import BatchRule, ConjugateGradient, GradientDescent, Lbfgs
from disttrain.job.downpour import Downpour
from disttrain.job.optimizer import Adagrad, Momentum, Sgd
from disttrain.job.sandblaster import Sandblaster
from disttrain.job.spec import Spec
from disttrain.parameter_server import batch_values, schedule, update_rules
from disttrain.parameter_server.applying import Applier, Updates
from disttrain.parameter_server.batch_shard import Reload, SandblasterShard
from disttrain.parameter_server.downpour_shard import DownpourShard
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.restoring import MakeValues
from disttrain.parameter_server.shard import Shard
from disttrain.parameter_server.state import ShardState
from disttrain.parameter_server.values import Values
from disttrain.parameter_server.warm_started_shard import WarmStartedShard
from disttrain.state.share import Share


def updates_for(config: Sgd | Momentum | Adagrad) -> Updates:
    """The update rule, its rate and its schedule."""
    return Updates(
        rule=update_rules.rule_for(config),
        learning_rate=config.learning_rate,
        factor=schedule.factor(config.schedule.rule),
    )


def build(state: ShardState, config: Sgd | Momentum | Adagrad, records: Records) -> DownpourShard:
    """A shard without values; see `Shard.configure`."""
    return DownpourShard(state, Applier(state, updates_for(config), records), records)


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


def values_for(strategy: Downpour | Sandblaster) -> MakeValues:
    """How room is made for what a checkpoint holds."""
    match strategy:
        case Downpour():
            names = tuple(updates_for(strategy.optimizer.rule).rule.initial_state)
            return with_state(names)
        case Sandblaster():
            return batch_values.make


def other_rules(strategy: Downpour | Sandblaster) -> tuple[str, ...]:
    """Update rules of checkpoints that a job can go on from, beside its own."""
    if isinstance(strategy, Downpour):
        return ()
    return tuple(kind.__name__.lower() for kind in (Lbfgs, ConjugateGradient, GradientDescent))


def values_before(strategy: Downpour | Sandblaster) -> dict[str, MakeValues]:
    """The same for the warm start of a batch method, by its update rule."""
    if isinstance(strategy, Downpour) or strategy.warm_start is None:
        return {}
    first = strategy.warm_start.rule
    return {rule_name(first.optimizer.rule): values_for(first)}


def with_state(names: tuple[str, ...]) -> MakeValues:
    """Room for an update rule's state vectors, too."""

    def make(share: Share, _description: Mapping[str, str]) -> Values:
        return Values(share, dict.fromkeys(names, 0.0))

    return make


def rule_name(config: Sgd | Momentum | Adagrad | BatchRule) -> str:
    """As the job's manifest and a checkpoint's write it: "sgd", "momentum", "adagrad"."""
    return type(config).__name__.lower()
