"""Puts a shard together from what the manifest says."""

from disttrain.job.optimizer import Adagrad, Momentum, Sgd
from disttrain.parameter_server import schedule, update_rules
from disttrain.parameter_server.applying import Applier, Updates
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.shard import Shard
from disttrain.parameter_server.state import ShardState


def updates_for(config: Sgd | Momentum | Adagrad) -> Updates:
    """The update rule, its rate and its schedule."""
    return Updates(
        rule=update_rules.rule_for(config),
        learning_rate=config.learning_rate,
        factor=schedule.factor(config.schedule.rule),
    )


def build(state: ShardState, config: Sgd | Momentum | Adagrad, records: Records) -> Shard:
    """A shard without values; see `Shard.configure`."""
    return Shard(state, Applier(state, updates_for(config), records), records)


def rule_name(config: Sgd | Momentum | Adagrad) -> str:
    """As the job's manifest and a checkpoint's write it: "sgd", "momentum", "adagrad"."""
    return type(config).__name__.lower()
