"""What the coordinator needs of the manifest, with the defaults filled in. Pure."""

from dataclasses import dataclass, replace

from disttrain.job import defaults
from disttrain.job.downpour import Downpour
from disttrain.job.evaluation import Evaluation
from disttrain.job.roles import Durability
from disttrain.job.sandblaster import Sandblaster
from disttrain.job.spec import Spec
from disttrain.job.stop import Stop
from disttrain.sandblaster.names import FETCHABLE


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The rules of one job."""

    replicas: int
    shards: int
    batch_size: int
    seed: int
    stop: Stop
    kept: tuple[str, ...] = ()
    """Names of vectors that holders keep beside what is trained, in all of the job's phases."""
    portion_size: int | None = None
    """Samples; None: derived from the size of the data."""
    evaluation: Evaluation | None = None
    """None: never but at the end."""
    evaluation_batch_size: int = 1
    warm_start_samples: int = 0
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
    max_non_finite: int = 10
    end_grace_seconds: float = 5.0
    """Time that members have to leave after the end."""
    staleness_bound: int = 20
    """Updates per replica; more of staleness needs an explanation."""
    batch: Sandblaster | None = None
    """How whole batches are worked on, without what is done before; None: by downpour, or this is
    what is done before."""
    then: "Settings | None" = None
    """Rules of the batch method that follows these, its warm start; None: nothing follows."""
    follows_warm_start: bool = False
    """Replicas begin with a warm start, which is over."""

    @property
    def last(self) -> "Settings":
        """Rules with which the job ends."""
        return self.then or self

    def at(self, *, batch: bool) -> "Settings":
        """Rules of now; `batch`: whether the batch method has begun, if there is one."""
        return self.last if batch else self


def from_spec(spec: Spec) -> Settings:
    """The settings of a manifest; of a warm start first, if there is one."""
    first = defaults.first_stage(spec)
    last = _with_strategy(_common(spec), spec.strategy.rule)
    if first is spec:
        return last
    last = replace(last, kept=(*_kept(first.strategy.rule), *last.kept))
    return replace(
        _with_strategy(_common(first), first.strategy.rule),
        kept=last.kept,
        evaluation_batch_size=last.evaluation_batch_size,
        then=replace(last, follows_warm_start=True),
    )


def _common(spec: Spec) -> Settings:
    return Settings(
        replicas=spec.replicas.count,
        shards=spec.parameter_server.shards,
        batch_size=defaults.samples_per_step(spec),
        seed=spec.seed,
        stop=spec.stop,
        portion_size=spec.portion_size,
        evaluation=spec.evaluation,
        evaluation_batch_size=defaults.evaluation_batch_size(spec),
        durability=spec.parameter_server.durability,
        checkpoint_seconds=spec.checkpoint.every_seconds,
        checkpoint_uri=spec.checkpoint.uri,
        heartbeat_seconds=spec.coordinator.heartbeat_seconds,
        lease_seconds=spec.coordinator.lease_seconds,
        member_timeout_seconds=spec.coordinator.member_timeout_seconds,
        max_non_finite=spec.failure_policy.max_non_finite_gradients,
    )


def _kept(strategy: Downpour | Sandblaster) -> tuple[str, ...]:
    return strategy.optimizer.rule.kept if isinstance(strategy, Downpour) else FETCHABLE


def _with_strategy(settings: Settings, strategy: Downpour | Sandblaster) -> Settings:
    settings = replace(settings, kept=_kept(strategy))
    match strategy:
        case Downpour():
            return replace(
                settings,
                warm_start_samples=defaults.warm_start_samples(strategy),
                staleness_bound=defaults.staleness_bound(strategy),
            )
        case Sandblaster():
            batch = strategy.model_copy(update={"warm_start": None})
            return replace(settings, portion_size=strategy.portion_size, batch=batch)
