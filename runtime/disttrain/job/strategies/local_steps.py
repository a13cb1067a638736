"""Local steps as a manifest describes them: replicas train alone, and push what has changed."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from disttrain.job import subclasses
from disttrain.job.inner_optimizer import InnerOptimizer
from disttrain.job.length import Extent
from disttrain.job.merged import MOST_FRAGMENTS, OWN, Merged, merged_name
from disttrain.job.outer_rule import OuterRule
from disttrain.job.outer_rules.average import Average
from disttrain.job.schedule import Schedule
from disttrain.job.section import Count, NotNegative, Positive, one_of, refused
from disttrain.job.shard_rule import ShardRule
from disttrain.job.strategy_kind import (
    UNUSUAL_STALENESS,
    Exchanges,
    Formats,
    Numbers,
    Precision,
    PushedNumbers,
    StrategyKind,
)

OUTER_RULES: Final = subclasses.found("disttrain.job.outer_rules", OuterRule)


class Outer(one_of(*(rule.option() for rule in OUTER_RULES))):  # type: ignore[misc]  # Its fields are the modules found.
    """Exactly one rule for the differences that replicas push, applied on the shards."""

    @property
    def rule(self) -> OuterRule:
        chosen: OuterRule = super().rule
        return chosen


class Adopt(StrEnum):
    """What becomes of a replica's parameters when those of the shards arrive."""

    REPLACE = "replace"
    """A replica waits for them after its push, and goes on with them."""
    ADD = "add"
    """It goes on at once, and adds later what the others have changed: computing does not wait as
    long as a push and a fetch take less than its steps between two pushes."""


def _known(precision: object) -> object:
    if precision == Numbers.BFLOAT16:
        message = (
            "must be float32 or float64, got 'bfloat16', which only downpour has; for local steps "
            "use torch.autocast in Task.loss"
        )
        raise refused(message)
    return precision


class LocalSteps(StrategyKind):
    """Each replica trains with an optimizer of its own, and shards average what has changed."""

    name = "local_steps"
    summary = "Replicas that train by themselves between pushes: for slow networks."
    update_rule_field = "spec.strategy.localSteps.outer"
    rate_field = "optimizer.arguments.lr"
    groups_parameters = True
    pushes_seldom = True
    makes_torch_optimizers = True
    has_ranks = True

    steps: Count = 32
    """Steps of a replica between two pushes. The wire carries that many times fewer bytes than with
    a push for each. A kill of a replica costs up to as many of its steps. With `adopt: add` it may
    be twice as many, since its latest push may be under way."""

    seconds: Positive | None = None
    """Seconds after which a replica pushes if they pass before its `steps` do. With many steps,
    slow replicas then push as often as fast ones. null: by steps alone."""

    fragments: Annotated[int, Field(ge=1, le=MOST_FRAGMENTS)] = 1
    """Parts of the model that are pushed and fetched in turn, one of them after every
    `steps / fragments` steps, so that each travels after `steps` of them. A push is so many times
    shorter, and the network is used evenly. `steps` is a multiple. It has up to 64, each of 128
    parameters or more. 1: all of the model at once."""

    optimizer: InnerOptimizer = InnerOptimizer()
    """The optimizer of each replica. Its state stays with the replica and is in no checkpoint."""

    outer: Outer = Outer(average=Average())
    """The rule for what is pushed: the parameters fetched last less those of the replica."""

    adopt: Annotated[Adopt, Field(strict=False)] = Adopt.ADD
    """How a replica takes over what the shards have after its push. replace: it waits for them, and
    goes on with them. add: it goes on at once, and adds later what the others have changed, so that
    computing waits for nothing that takes less than `steps` steps."""

    quorum: Count | None = None
    """Replicas that have to have pushed before a shard changes the parameters. It then applies the
    outer rule once to the mean of what they pushed, weighted by samples times samples of a step, of
    each fragment by itself. Replicas that are gone
    are not waited for. null: each push changes the parameters by itself."""

    grace_seconds: NotNegative | None = None
    """Seconds that a shard waits for further replicas when the quorum is there. null: with `add`
    half of the time between two pushes of a fragment by the quickest replica that is present, with
    `replace` 0."""

    maximum_age: Count | None = None
    """The most updates by others since the fetch that a push is a difference to. An older push is
    dropped, and its samples are processed again. Replicas of equal speed push at an age of one less
    than there are. null: none is too old."""

    push_as: Annotated[PushedNumbers, Field(strict=False)] = PushedNumbers.FLOAT32
    """What differences travel as. bfloat16: half of the bytes; int8: 3.9 times fewer. A replica
    adds to each difference what rounding took from the one before, so that none of it is lost but
    by a restart. Shards compute in float32. Buffers travel as they are."""

    fetch_as: Annotated[Numbers, Field(strict=False)] = Numbers.FLOAT32
    """What fetched parameters travel as. bfloat16: half of the bytes, each fetch rounded; shards
    keep float32, and pushes are differences to what was fetched, so that no push carries what
    rounding did. The first fetch and those for evaluations are float32."""

    maximum_norm: Positive | None = None
    """The largest L2 norm of a push. A replica scales a longer one down to it, which the summary
    and metrics count. Shards refuse what is a tenth beyond it, so that a broken or malicious
    replica moves the parameters on each shard by no more than its weight allows. Buffers have no
    such limit. null: none."""

    precision: Annotated[Precision, Field(strict=False), BeforeValidator(_known)] = (
        Precision.FLOAT32
    )
    """Numbers of the model, of the vectors on the shards, and on the wire. For bfloat16 use
    torch.autocast in `Task.loss`."""

    @property
    def update_rule(self) -> str:
        rule = self.outer.rule
        return rule.name if self.quorum is None else merged_name(rule, self.fragments)

    def shard_rule(self, replicas: int) -> ShardRule:
        """What the shards of a job with so many replicas carry out."""
        rule = self.outer.rule
        if self.quorum is None:
            return rule
        return Merged(
            learning_rate=rule.learning_rate,
            inner=rule,
            replicas=replicas,
            quorum=self.quorum,
            grace_seconds=self.grace_seconds,
            fragments=self.fragments,
        )

    @property
    def computes_on(self) -> str:
        return super().computes_on if self.quorum is None else OWN

    @property
    def vectors(self) -> tuple[str, ...]:
        """Names of what replicas and shards exchange, or shards keep, beside the model.

        What is gathered by replica is known to its shard alone.
        """
        served = () if self.quorum is None else (OWN,)
        return (*self.outer.rule.kept, *served)

    @property
    def computes_in(self) -> Precision:
        return self.precision

    @property
    def formats(self) -> Formats:
        return Formats(
            self.computes_in,
            pushed=self.push_as,
            keeps_errors=self.push_as is not PushedNumbers.FLOAT32,
            fetched=self.fetch_as,
        )

    @property
    def exchanges(self) -> Exchanges:
        return Exchanges(pushes=1 / self.steps, fetches=1 / self.steps, parts=self.fragments)

    @property
    def against_a_slow_network(self) -> str:
        return f"{super().against_a_slow_network} or more localSteps.steps"

    @property
    def planned_rate(self) -> tuple[float, Schedule] | None:
        """Torch's default is not known here."""
        rate = self.optimizer.arguments.get("lr")
        return (rate, self.optimizer.schedule) if isinstance(rate, int | float) else None

    def problem_in(self, run: Extent) -> str | None:
        problem = self.optimizer.problem_in(run)
        return problem and f"optimizer.{problem}"

    @property
    def staleness_bound(self) -> int:
        """Updates of staleness, for each replica of the job, that something explains.

        Each replica pushes once between a fetch and the push that is the difference to it: each of
        the fragments.
        """
        return UNUSUAL_STALENESS * self.fragments
