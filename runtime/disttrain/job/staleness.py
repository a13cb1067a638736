"""What is done about gradients that are old when they arrive, in a manifest.

A gradient's staleness, at each shard, is how many updates the shard has applied since it gave out
what the gradient was computed on.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from disttrain.job.section import Count, Positive, Section
from disttrain.job.update_rule import UpdateRule
from disttrain.job.update_rules.compensated import Adaptive, Compensated
from disttrain.job.update_rules.momentum import Momentum
from disttrain.job.update_rules.predicted_momentum import PredictedMomentum

_PREDICT, _COMPENSATE, _BOTH = "predict", "delayCompensation", "predictAndCompensate"
_REMEDIES = ("scaleRate", _PREDICT, _COMPENSATE, _BOTH)


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


class DelayCompensation(Section):
    """Correct each gradient by how far the parameters have moved since (DC-ASGD).

    Zheng et al., "Asynchronous Stochastic Gradient Descent with Delay Compensation for Distributed
    Deep Learning", 2017. A replica pushes its gradient g and g * g * w, of the parameters w that it
    computed with. A shard applies g + strength * (g * g * w of now - what was pushed). Pushes are
    twice as long.
    """

    strength: Positive | None = None
    """Lambda in the paper. null: 2 with `adaptive`, else 0.04."""

    adaptive: Adaptive | None = None
    """Divide the strength by the root of a running mean of g * g, for each parameter by itself.
    null: the strength is the same everywhere."""

    @property
    def factor(self) -> float:
        """The strength, given or not."""
        return self.strength or (0.04 if self.adaptive is None else 2.0)


class Policy(StrEnum):
    """What is done so that no gradient gets older than a maximum."""

    REJECT = "reject"
    """Nobody waits; what is older is refused."""
    WAIT = "wait"
    """A push waits while a gradient that somebody still computes would get too old by it (bounded
    staleness). Who does not push within 4 times its usual time, or 2 s, is not waited for, and may
    be refused."""


class Maximum(Section):
    """What is older is not applied: its samples go back, and any replica may process them."""

    policy: Annotated[Policy, Field(strict=False)] = Policy.REJECT
    """wait: quick replicas wait for slow ones, so that hardly a gradient is computed in vain. It
    needs `maxInFlight: 0` and `fetchEvery: 1`."""

    updates: Count = Field(examples=[20])
    """The most staleness of a push that a shard applies, at the push's first chunk. Each shard
    decides for itself: another one may apply the same push."""


class Staleness(Section):
    """What is done about the staleness of gradients: `maximum`, and at most one of the others."""

    maximum: Maximum | None = None
    """Refuse gradients that are older. It helps against single replicas that are much slower than
    the others; where most gradients are that old it wastes their work. null: all are applied."""

    scale_rate: ScaleRate | None = None
    """Divide the rate of each push by its staleness. It helps sgd and momentum with a rate that is
    too large for so many replicas; it slows rules down that adapt their rate, as adagrad."""

    predict: Predict | None = None
    """Give out predicted parameters (PP-ASGD). It needs momentum, and helps where consecutive
    gradients point the same way."""

    delay_compensation: DelayCompensation | None = None
    """Correct gradients by how far the parameters have moved since (DC-ASGD). It goes with every
    optimizer. It helps where its strength is tuned; too much of it diverges."""

    predict_and_compensate: DelayCompensation | None = None
    """Both: gradient and its square are of predicted parameters, and the shards correct by the
    error of the prediction. It needs momentum."""

    @property
    def most(self) -> int | None:
        return None if self.maximum is None else self.maximum.updates

    @property
    def waits(self) -> bool:
        """Whether pushes wait for older gradients of other replicas."""
        return self.maximum is not None and self.maximum.policy is Policy.WAIT

    @property
    def compensation(self) -> DelayCompensation | None:
        return self.delay_compensation or self.predict_and_compensate

    def problem(self) -> str | None:
        remedies = self._remedies()
        if len(remedies) < 2:
            return None
        return f"must have at most one of {', '.join(_REMEDIES)}, got {' and '.join(remedies)}"

    def problem_with(self, rule: UpdateRule, push_every: int) -> str | None:
        """Why it cannot be had with the optimizer that is chosen; None: it can."""
        for name in self._remedies():
            field = f"staleness.{name}"
            if name in {_COMPENSATE, _BOTH} and push_every > 1:
                return (
                    f"{field} needs pushEvery: 1, since it takes the square of each step's "
                    f"gradient, got {push_every}"
                )
            if name in {_PREDICT, _BOTH}:
                return _problem_with_prediction(field, rule)
        return None

    def made_of(self, rule: UpdateRule) -> UpdateRule:
        """What the shards carry out where this update rule is chosen, and fits."""
        if self.predict is not None or self.predict_and_compensate is not None:
            fields = PredictedMomentum.model_fields
            rule = PredictedMomentum(**{name: getattr(rule, name) for name in fields})
        found = self.compensation
        return rule if found is None else Compensated.of(rule, found.factor, found.adaptive)

    def _remedies(self) -> list[str]:
        return [name for name in _REMEDIES if name in self.given()]


def _problem_with_prediction(field: str, rule: UpdateRule) -> str | None:
    if not isinstance(rule, Momentum):
        return f"{field} needs optimizer.momentum, whose velocity it goes by, got {rule.name}"
    if rule.nesterov:
        return (
            f"{field} looks ahead as nesterov does, and further where gradients are older; set "
            "optimizer.momentum.nesterov: false"
        )
    return None
