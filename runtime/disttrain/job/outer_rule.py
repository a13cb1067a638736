"""What shards do with the differences that replicas push after local steps."""

from disttrain.job.section import Positive
from disttrain.job.shard_rule import ShardRule


class OuterRule(ShardRule):
    """What all outer rules take.

    Their arithmetic is in `parameter_server.outer_rules`. Names are none of an update rule:
    checkpoints tell both apart by them.
    """

    uses_factors = False
    # Replicas have: their steps went by them.

    learning_rate: Positive = 1.0
    """What a difference is multiplied by, after it was divided by the number of live replicas."""
