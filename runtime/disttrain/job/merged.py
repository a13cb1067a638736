"""What shards do where a quorum of replicas is merged at once: of `localSteps.quorum`."""

from typing import Final

from disttrain.job.outer_rule import OuterRule
from disttrain.job.section import Count, NotNegative, Positive
from disttrain.job.shard_rule import ShardRule
from disttrain.job.update_rule import IN_FRAGMENTS

OWN: Final = "own"
"""The vector that a replica computes with: the parameters less what it has pushed and no merge
holds yet."""
MOST_FRAGMENTS: Final = 64
MOST_REPLICAS: Final = 64
"""Each has a vector on every shard."""


class Merged(ShardRule):
    """Gathers differences by replica, and applies an outer rule to their weighted mean."""

    uses_factors = False
    serves = OWN

    learning_rate: Positive
    inner: OuterRule
    """Applied to the mean, as to the push of one replica alone."""

    replicas: Count
    """Of the job."""
    quorum: Count
    grace_seconds: NotNegative | None
    """None: as long as replicas have time."""
    fragments: Count = 1
    """Each is merged by itself."""

    @property
    def name(self) -> str:  # type: ignore[override]
        return merged_name(self.inner, self.fragments)

    @property
    def kept(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.inner.kept

    @property
    def initial_state(self) -> dict[str, float]:
        """Also what is gathered, which a checkpoint of fewer replicas has not for all."""
        return dict.fromkeys((*self.kept, *self.gathered), 0.0)

    @property
    def gathered(self) -> tuple[str, ...]:
        """The vector of each replica, by its index: what it has pushed since the last merge."""
        return tuple(f"gathered_{index}" for index in range(self.replicas))


def merged_name(inner: OuterRule, fragments: int = 1) -> str:
    """In checkpoints: without the quorum, or in other fragments, what is gathered would be lost."""
    name = f"merged_{inner.name}"
    return name if fragments == 1 else f"{name}{IN_FRAGMENTS}{fragments}"
