"""The outer rule of DiLoCo in a manifest."""

from disttrain.job.outer_rule import OuterMomentum


class Nesterov(OuterMomentum):
    """Takes each difference for a gradient, and steps with Nesterov's momentum.

    After Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models",
    2023, but each push is a step of the velocity, which is kept on the shards. Many replicas want a
    smaller momentum therefore, or `delayedNesterov`.
    """

    name = "nesterov"
    kept = ("velocity",)
