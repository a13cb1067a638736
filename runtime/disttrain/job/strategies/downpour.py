"""Downpour as a manifest describes it: asynchronous SGD with a sharded parameter server."""

import math
from typing import Annotated, Final

from pydantic import Field

from disttrain.job import subclasses
from disttrain.job.average import AVERAGE, Average
from disttrain.job.length import Extent
from disttrain.job.schedule import Schedule
from disttrain.job.schedule_kinds import LinearWarmup
from disttrain.job.section import Count, NotNegative, Section, one_of
from disttrain.job.staleness import Staleness
from disttrain.job.strategy_kind import (
    UNUSUAL_STALENESS,
    Exchanges,
    Formats,
    Numbers,
    PushedNumbers,
    StrategyKind,
)
from disttrain.job.update_rule import UpdateRule
from disttrain.job.update_rules.adagrad import Adagrad

_FOUND = subclasses.found("disttrain.job.update_rules", UpdateRule)
UPDATE_RULES: Final = tuple(rule for rule in _FOUND if rule.is_chosen)


class Optimizer(one_of(*(rule.option() for rule in UPDATE_RULES))):  # type: ignore[misc]  # Its fields are the modules found.
    """Exactly one update rule, applied on the shards."""

    @property
    def rule(self) -> UpdateRule:
        chosen: UpdateRule = super().rule
        return chosen


class WarmStart(Section):
    """One replica trains alone first, as in DistBelief."""

    samples: Count = Field(examples=[5000])
    """Samples that replica 0 processes before the others begin."""


class Downpour(StrategyKind):
    """Downpour SGD (DistBelief 4.1): asynchronous replicas, a sharded parameter server."""

    name = "downpour"
    summary = "Asynchronous SGD with a parameter server."
    update_rule_field = "spec.strategy.downpour.optimizer"
    groups_parameters = True

    precision: Annotated[Numbers, Field(strict=False)] = Numbers.FLOAT32
    """What replicas compute with. bfloat16: torch.autocast around the forward pass and the loss, in
    training and evaluation. Parameters, gradients and all that shards hold stay float32."""

    push_every: Count = 1
    """Steps whose gradients are summed into one push; n_push in the papers."""

    fetch_every: Count = 1
    """Steps between two fetches of the parameters; n_fetch in the papers."""

    push_as: Annotated[Numbers, Field(strict=False)] = Numbers.FLOAT32
    """What gradients travel as. bfloat16: half of the bytes, each push rounded. Shards compute in
    float32. The model's buffers, such as running statistics, travel as they are."""

    fetch_as: Annotated[Numbers, Field(strict=False)] = Numbers.FLOAT32
    """What fetched parameters travel as, the same. The first fetch and those for evaluations are
    float32."""

    max_in_flight: Annotated[int, Field(ge=0, le=16)] = 1
    """Unanswered pushes that computing may run ahead of. It does not where waiting for the reply
    and for fresh parameters is short beside a step: older parameters make gradients worth less. 0:
    always wait, which with one replica makes the run deterministic."""

    local_learning_rate: NotNegative | None = None
    """Rate of a replica's own steps between fetches, before the optimizer's schedule, which it
    follows. null: the optimizer's rate, or 0 (no local steps) for one whose steps only the shards
    know, as adagrad's."""

    optimizer: Optimizer = Optimizer(
        adagrad=Adagrad(
            learning_rate=0.03,
            initial_accumulator=0.1,
            schedule=Schedule(linear_warmup=LinearWarmup(samples=1024)),
        )
    )
    """The update rule on the shards. The default begins gently, since the first steps of all
    replicas add up: its rate grows over 32 batches of 32 samples. Larger batches want as many."""

    warm_start: WarmStart | None = None
    """One replica alone first. null: all replicas begin at once."""

    staleness: Staleness = Staleness()
    """What is done about gradients that are old when they arrive. The default: nothing."""

    ema: Average | None = None
    """A moving average of the parameters, which evaluations and exports take. null: none."""

    def problem(self) -> str | None:
        # What is wrong with the choice of a rule is said of it alone.
        if len(self.optimizer.given()) != 1:
            return None
        if self.staleness.compensation is not None and self.push_as is Numbers.BFLOAT16:
            return (
                "a compensation of delays needs pushAs: float32, since rounded gradients differ "
                "from those that were squared, got bfloat16"
            )
        return self.staleness.problem_with(self.optimizer.rule, self.push_every)

    @property
    def shard_rule(self) -> UpdateRule:
        """What the shards carry out: the optimizer, or what is made of it against staleness."""
        return self.staleness.made_of(self.optimizer.rule)

    @property
    def formats(self) -> Formats:
        return Formats(self.computes_in, pushed=PushedNumbers(self.push_as), fetched=self.fetch_as)

    @property
    def exchanges(self) -> Exchanges:
        return Exchanges(pushes=1 / self.push_every, fetches=1 / self.fetch_every)

    @property
    def autocasts(self) -> bool:
        return self.precision is Numbers.BFLOAT16

    @property
    def update_rule(self) -> str:
        return self.shard_rule.name

    @property
    def computes_on(self) -> str:
        return self.shard_rule.serves or super().computes_on

    @property
    def pushed(self) -> tuple[str, ...]:
        return self.shard_rule.pushed

    @property
    def evaluates(self) -> str:
        return super().evaluates if self.ema is None else AVERAGE

    @property
    def vectors(self) -> tuple[str, ...]:
        """Names of what replicas and shards exchange, or shards keep, beside the model."""
        rule = self.shard_rule
        average = () if self.ema is None else (AVERAGE,)
        served = () if rule.serves is None else (rule.serves,)
        return (*rule.initial_state, *rule.pushed, *average, *served)

    def problem_in(self, run: Extent) -> str | None:
        if (problem := self.optimizer.rule.problem_in(run)) is not None:
            return f"optimizer.{problem}"
        problem = None if self.ema is None else self.ema.problem_in(run)
        return problem and f"ema.{problem}"

    @property
    def against_a_slow_network(self) -> str:
        return f"{super().against_a_slow_network} or pushEvery"

    @property
    def planned_rate(self) -> tuple[float, Schedule]:
        return self.optimizer.rule.learning_rate, self.optimizer.rule.schedule

    @property
    def warm_start_samples(self) -> int:
        """Samples that replica 0 processes alone; 0 without a warm start."""
        return self.warm_start.samples if self.warm_start else 0

    @property
    def rate_of_local_steps(self) -> float:
        """0: a replica takes no steps of its own between fetches."""
        if self.local_learning_rate is not None:
            return self.local_learning_rate
        return self.shard_rule.local_learning_rate

    @property
    def staleness_bound(self) -> int:
        """Updates of staleness, for each replica of the job, that something explains.

        Until a gradient is applied, each replica pushes what it computes between two fetches, and
        the pushes that it may leave unanswered.
        """
        return UNUSUAL_STALENESS * (self.pushes_between_fetches + self.max_in_flight)

    @property
    def pushes_between_fetches(self) -> int:
        """Of one replica."""
        return math.ceil(self.fetch_every / self.push_every)
