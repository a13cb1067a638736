"""Plain SGD in a manifest."""

from disttrain.job.update_rule import UpdateRule


class Sgd(UpdateRule):
    """Plain stochastic gradient descent."""

    name = "sgd"
