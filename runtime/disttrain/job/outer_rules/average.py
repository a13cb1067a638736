"""The plain outer rule in a manifest."""

from disttrain.job.outer_rule import OuterRule


class Average(OuterRule):
    """Moves the parameters by each difference: with rate 1, to the mean over the live replicas."""

    name = "average"
