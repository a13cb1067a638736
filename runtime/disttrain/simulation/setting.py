"""A job that can be simulated, and what is known of it before."""

from dataclasses import dataclass

from pydantic.alias_generators import to_camel

from disttrain.coordinator import strategies
from disttrain.coordinator.strategies.downpour import Asynchronous
from disttrain.job import defaults
from disttrain.job.roles import Device
from disttrain.job.spec import DistTrainJob, Spec
from disttrain.replica import model_tensors
from disttrain.replica.task_calls import TaskCalls
from disttrain.simulation.errors import NotSimulated
from disttrain.state.placement import Placement, place
from disttrain.task.task import Split
from disttrain.transport.config import TransportConfig, TransportKind
from disttrain.transport.header import Role
from disttrain.transport.in_memory import InMemoryTransport, Link, Network


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A job that can be simulated, with its task. See `replay.replica.Setting`."""

    spec: Spec
    task: TaskCalls
    device: Device
    placement: Placement
    train_samples: int
    sources: str = ""
    """As in `DataLedger`."""
    warm_start_samples: int = 0
    """Those that one replica processes alone first."""

    @property
    def seed(self) -> int:
        return self.spec.seed


def in_memory(network: Network, role: Role, link: Link | None = None) -> InMemoryTransport:
    """The transport of one process. `link`: of its machine; None: it holds up nothing."""
    config = TransportConfig(kind=TransportKind.TCP, job_uid="simulation", role=role)
    return InMemoryTransport(network, config, link)


def prepare(job: DistTrainJob, task: TaskCalls) -> Setting:
    """Raises NotSimulated, TaskError."""
    spec = job.spec
    *before, side = strategies.stages(spec)
    if before:
        name = to_camel(spec.strategy.rule.name)
        message = (
            f"spec.strategy.{name}.warmStart: a strategy after another one is not simulated; "
            "simulate each of them as a job of its own"
        )
        raise NotSimulated(message)
    model = task.model(spec.seed)
    tensors = model_tensors.describe(
        model, defaults.precision(spec), task.parameter_groups(model), spec.task.frozen
    )
    train = task.examples(Split.TRAIN, defaults.samples_per_step(spec))
    return Setting(
        spec=spec,
        task=task,
        device=spec.replicas.device,
        placement=place(tensors.layout, spec.shards, side.settings.kept),
        train_samples=train.count,
        sources=train.sources,
        warm_start_samples=side.warm_start_samples if isinstance(side, Asynchronous) else 0,
    )
