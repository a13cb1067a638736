"""Adam with decoupled weight decay in a manifest."""

from disttrain.job.section import NotNegative
from disttrain.job.update_rules.adam import Adam


class AdamW(Adam):
    """Adam whose weight decay is no part of the gradient, and so not divided by the root.

    Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019.
    """

    name = "adamw"
    decays_gradients = False

    weight_decay: NotNegative = 0.01
    """Decoupled: in each update the shard multiplies every parameter that has a gradient by
    1 - rate * this. A push of several steps is one update."""
