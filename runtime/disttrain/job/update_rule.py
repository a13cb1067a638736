"""What a manifest says of an update rule, whichever it is."""

import math
from typing import ClassVar, Final

from pydantic import Field
from pydantic.alias_generators import to_camel

from disttrain.job.length import Extent
from disttrain.job.schedule import Schedule
from disttrain.job.schedule_kinds import Constant, Factor
from disttrain.job.section import NotNegative, Positive
from disttrain.job.shard_rule import ShardRule


class UpdateRule(ShardRule):
    """What all update rules take. Their arithmetic is in `parameter_server.update_rules`."""

    is_chosen: ClassVar[bool] = True
    # Whether manifests offer it as an optimizer; else a strategy makes it of another one.

    adapts: ClassVar[bool] = False
    # Whether the gradients of before say how large its steps are.

    decays_gradients: ClassVar[bool] = True
    # Whether replicas add the weight decay to their gradients; else the rule takes care of it.

    learning_rate: Positive = Field(examples=[0.05])
    """The full learning rate, before the schedule."""

    weight_decay: NotNegative = 0.0
    """L2 penalty: this times the parameter is added to its gradient in every step, and nothing if
    there is none, as torch.optim does."""

    clip_norm: Positive | None = None
    """Largest L2 norm of one step's gradient; a longer one is scaled down to it. null: no limit."""

    schedule: Schedule = Schedule(constant=Constant())
    """How the rate changes with the samples processed."""

    def problem_in(self, run: Extent) -> str | None:
        """What does not fit into a run, with its place from the rule's name on; None: nothing."""
        problem = self.schedule.problem_in(run)
        return problem and f"{to_camel(self.name)}.schedule.{problem}"

    @property
    def gradient_decay(self) -> float:
        """What replicas add to a gradient, times the parameter."""
        return self.weight_decay if self.decays_gradients else 0.0

    def rates(self, run: Extent) -> Factor:
        return self.schedule.rates(run)

    @property
    def local_learning_rate(self) -> float:
        """Rate of a replica's steps between fetches, where a manifest says none; 0: no steps."""
        return self.learning_rate

    def hasty_beginning(self, replicas: int) -> str | None:
        """How the first steps of several replicas go too far together; None: they do not."""
        del replicas
        return None

    def effect_of_sums(self, steps: int) -> str | None:
        """What a rate means when a push sums the gradients of so many steps; None: the same."""
        del steps
        return None


def present_name(name: str) -> str:
    """Of an update rule, as checkpoints of any version name it."""
    return _FORMER_NAMES.get(name, name)


def in_manifests(name: str) -> str:
    """What a manifest says for an update rule, or an outer rule, that a checkpoint names."""
    fields = []
    name, _, fragments = name.partition(IN_FRAGMENTS)
    for prefix, field in _MADE_BY.items():
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            fields.append(field)
    if fragments:
        fields.append(f"fragments: {fragments}")
    chosen = to_camel(name)
    return f"{chosen} with {' and '.join(fields)}" if fields else chosen


IN_FRAGMENTS: Final = "_in_"
"""In the name of a rule that is carried out in so many fragments, before their number."""

_MADE_BY = {
    "merged_": "quorum",
    "adaptive_predicted_": "staleness.predictAndCompensate.adaptive",
    "adaptive_": "staleness.delayCompensation.adaptive",
    "predicted_": "staleness.predict",
}
"""By the beginnings of names: what of a strategy makes a rule another one, outermost first."""

_FORMER_NAMES = {"staleness_aware_sgd": "sgd"}
"""It kept nothing beside the parameters, and is sgd with `staleness.scaleRate` now."""

VELOCITY_OF_SUMS = (
    "makes one step of the velocity of {steps} gradients, so that it remembers {steps} times "
    "as many; keep the learningRate while that many gradients at once are stable"
)


def step_of_usual_size(steps: int) -> str:
    """An `effect_of_sums` of a rule whose steps are as large whatever the gradients' length."""
    return (
        f"makes one step of the usual size for {steps} gradients; begin with about "
        f"{math.sqrt(steps):.2g} times the learningRate of pushEvery 1"
    )


def full_first_steps(rule: UpdateRule, replicas: int, length: float) -> str | None:
    """A `hasty_beginning` of a rule whose first steps have this length in every parameter."""
    if rule.schedule.beginning is not None:
        return None
    return (
        f"begins with its full rate, so the first steps of {replicas} replicas, each "
        f"{length:g} in every parameter, add up; give its schedule a warmup, as "
        "{fraction: 0.05}, or set spec.strategy.downpour.warmStart"
    )
