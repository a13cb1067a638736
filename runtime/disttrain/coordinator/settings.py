"""What the coordinator needs of the manifest, with the defaults filled in. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from disttrain.job import defaults
from disttrain.job.failure_policy import RestartBackoff
from disttrain.job.roles import Durability
from disttrain.job.spec import Spec
from disttrain.job.stop import Evaluation, Stop
from disttrain.transport.header import Role

_AT_ONCE = RestartBackoff(initial_seconds=0.0)


def _no_problem(_train_samples: int) -> str | None:
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The rules of one stage of a job: of one strategy at work."""

    replicas: int
    partitions: int = 1
    """Processes of each replica."""
    shards: int
    holding_replicas: int = 0
    """Those from the first one on that hold the job's state; 0: shards do."""
    batch_size: int
    batch_size_field: str = "spec.batchSize"
    """Which the manifest calls it."""
    seed: int
    stop: Stop
    kept: tuple[str, ...] = ()
    """Names of vectors that holders keep beside what is trained, in all of the job's stages."""
    update_rule: str = ""
    """What changes the parameters, as checkpoints name it."""
    rate_field: str = "learningRate"
    """What the manifest calls the rate, for those whose training diverges."""
    problem_with_data: Callable[[int], str | None] = _no_problem
    """What does not fit to so many training samples; None: nothing."""
    portion_size: int | None = None
    """Samples; None: derived from the size of the data."""
    portion_size_field: str = "spec.portionSize"
    """What makes it larger in the manifest."""
    most_portions: int = 2**63
    """Of the data, that the coordinator can keep account of."""
    evaluation: Evaluation | None = None
    """None: never but at the end."""
    evaluation_batch_size: int = 1
    durability: Durability = Durability.CHECKPOINT
    checkpoint_seconds: float = 60.0
    checkpoint_uri: str = "checkpoints/"
    """For those who look for them."""
    heartbeat_seconds: float = 1.0
    """Between two signs of life of a member, in a job with few of them."""
    lease_seconds: float = 30.0
    """Silence after which a replica's leases go to others."""
    member_timeout_seconds: float = 60.0
    """Silence after which a member counts as dead."""
    restart_backoff: RestartBackoff = _AT_ONCE
    max_non_finite: int = 10
    staleness_bound: int = 20
    """Updates per replica; more of staleness needs an explanation."""

    @property
    def holders(self) -> int:
        """Members that hold the job's state: all shards, or the first replicas."""
        return self.holding_replicas or self.shards

    @property
    def holder_role(self) -> Role:
        return Role.REPLICA if self.holding_replicas else Role.SHARD

    def is_holder(self, role: Role, index: int) -> bool:
        return role is self.holder_role and index < self.holders


def from_spec(stage: Spec, job: Spec, kept: tuple[str, ...], checkpoint_uri: str) -> Settings:
    """The settings of one stage of a job, `stage` being its spec as a job of its own.

    What is one strategy's alone is left to that.
    """
    strategy = job.strategy.rule
    return Settings(
        replicas=job.replicas.count,
        partitions=job.replicas.processes,
        shards=job.shards,
        holding_replicas=strategy.holding_replicas(job.replicas.count),
        batch_size=defaults.samples_per_step(stage),
        batch_size_field=strategy.batch_size_field,
        seed=job.seed,
        stop=stage.stop,
        kept=kept,
        update_rule=stage.strategy.rule.update_rule,
        rate_field=stage.strategy.rule.rate_field,
        problem_with_data=partial(defaults.problem_with_data, job, stage),
        portion_size=stage.portion_size,
        portion_size_field=strategy.portion_size_field,
        evaluation=job.evaluation,
        evaluation_batch_size=defaults.evaluation_batch_size(job),
        durability=job.parameter_server.durability,
        checkpoint_seconds=job.checkpoint.every_seconds,
        checkpoint_uri=checkpoint_uri,
        heartbeat_seconds=job.coordinator.heartbeat_seconds,
        lease_seconds=job.coordinator.lease_seconds,
        member_timeout_seconds=job.coordinator.member_timeout_seconds,
        restart_backoff=job.failure_policy.restart_backoff,
        max_non_finite=job.failure_policy.max_non_finite_gradients,
    )
