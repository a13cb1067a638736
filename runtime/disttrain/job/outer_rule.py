"""What shards do with the differences that replicas push after local steps."""

from typing import Annotated, ClassVar

from pydantic import Field

from disttrain.job.section import Count, Positive
from disttrain.job.shard_rule import ShardRule


class OuterRule(ShardRule):
    """What all outer rules take.

    Their arithmetic is in `parameter_server.outer_rules`. Names are none of an update rule:
    checkpoints tell both apart by them.
    """

    uses_factors = False
    # Replicas have: their steps went by them.

    sends_parameters: ClassVar[bool] = False
    # Whether pushes carry a replica's parameters; else what they are less than those fetched.

    merges: ClassVar[bool] = True
    # Whether it can take the mean of several replicas' differences as one push.

    learning_rate: Positive = 1.0
    """What a difference is multiplied by, after it was divided by the number of live replicas."""

    full_age: Count | None = None
    """Updates by others up to which a push counts whole, since the fetch that it is a difference
    to. An older one counts `fullAge` over its age. null: each counts whole. Replicas of equal speed
    push at an age of one less than there are."""

    def weight(self, age: int, live_replicas: int) -> float:
        """What a push is multiplied by, beside the rate; -1: nobody knows its age."""
        discount = 1.0 if self.full_age is None else min(1.0, self.full_age / max(1, age))
        return discount / max(1, live_replicas)


class OuterMomentum(OuterRule):
    """What the rules with a velocity take."""

    learning_rate: Positive = 0.7
    """What a difference is multiplied by, after it was divided by the number of live replicas."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Fraction of the velocity that is kept from one of its steps to the next."""
