"""DiLoCo's outer rule for asynchronous replicas in a manifest."""

from disttrain.job.outer_rule import OuterMomentum


class DelayedNesterov(OuterMomentum):
    """Averages each difference, and steps with the velocity once for as many pushes as replicas.

    After Liu et al., "Asynchronous Local-SGD Training for Language Modeling", 2024, whose c is 0
    here. The velocity and the sum of differences are kept on the shards.
    """

    name = "delayed_nesterov"
    kept = ("velocity", "waiting")
    counts_steps = True
    merges = False
