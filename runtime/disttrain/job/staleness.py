"""What is done about gradients that are old when they arrive, in a manifest.

A gradient's staleness, at each shard, is how many updates the shard has applied since it gave out
what the gradient was computed on.
"""

from disttrain.job.section import Section
from disttrain.job.update_rule import UpdateRule
from disttrain.job.update_rules.momentum import Momentum
from disttrain.job.update_rules.predicted_momentum import PredictedMomentum


class ScaleRate(Section):
    """Divide the rate of each push by its staleness, if that is more than 1.

    After Zhang, Gupta, Lian and Liu, "Staleness-aware Async-SGD for Distributed Deep Learning",
    2016. Where the staleness of a push is unknown, the mean of the sender's others is taken.
    """


class Predict(Section):
    """Give each replica the parameters as they will be when its gradient arrives.

    Sato et al., "Asynchronous, Data-Parallel Deep Convolutional Neural Network Training with Linear
    Prediction Model for Parameter Transition", 2017 (PP-ASGD). A replica computes with the
    parameters plus the velocity times momentum + ... + momentum^(S + 1). S is the mean staleness of
    its last 64 to 127 pushes, rounded down. Evaluations, checkpoints and the exported model are of
    the parameters.
    """


class Staleness(Section):
    """What is done about the staleness of gradients; at most one of scaleRate and predict."""

    scale_rate: ScaleRate | None = None
    """Divide the rate of each push by its staleness. It helps sgd and momentum with a rate that is
    too large for so many replicas; it slows rules down that adapt their rate, as adagrad."""

    predict: Predict | None = None
    """Give out predicted parameters (PP-ASGD). It needs momentum, and helps where consecutive
    gradients point the same way."""

    def problem(self) -> str | None:
        remedies = [name for name in ("scaleRate", "predict") if name in self.given()]
        if len(remedies) < 2:
            return None
        return f"must have at most one of scaleRate and predict, got {' and '.join(remedies)}"

    def problem_with(self, rule: UpdateRule) -> str | None:
        """Why it cannot be had with the update rule that is chosen; None: it can."""
        if self.predict is None:
            return None
        if not isinstance(rule, Momentum):
            return (
                f"staleness.predict needs optimizer.momentum, whose velocity it goes by, got "
                f"{rule.name}"
            )
        if rule.nesterov:
            return (
                "staleness.predict looks ahead as nesterov does, and further where gradients are "
                "older; set optimizer.momentum.nesterov: false"
            )
        return None

    def made_of(self, rule: UpdateRule) -> UpdateRule:
        """What the shards carry out where this update rule is chosen, and fits."""
        if self.predict is None:
            return rule
        fields = PredictedMomentum.model_fields
        return PredictedMomentum(**{name: getattr(rule, name) for name in fields})
