"""SGD whose rate falls with the staleness of a gradient, in a manifest."""

from disttrain.job.update_rule import UpdateRule


class StalenessAwareSgd(UpdateRule):
    """SGD that divides the rate of each push by its staleness, if that is more than 1.

    After Zhang, Gupta, Lian and Liu, "Staleness-aware Async-SGD for Distributed Deep Learning",
    2016. Where the staleness of a push is unknown, the mean of the sender's others is taken.
    """

    name = "staleness_aware_sgd"
