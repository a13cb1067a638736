"""How a job's model is divided among the processes of a replica."""

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from disttrain.errors import Interruption
from disttrain.groups.steps import Collective
from disttrain.job.roles import Replicas
from disttrain.job.spec import DistTrainJob, FrozenParameters, Spec
from disttrain.job.strategy_kind import Precision
from disttrain.parallel.communicator import Communicator, Done, Exchange
from disttrain.parallel.counting import Loss
from disttrain.parallel.objective import JointForward, Objective
from disttrain.parallel.partitioned import CannotPartition, Partitioned, PartOfModel
from disttrain.parallel.partitioning import partition
from disttrain.parallel.reconstruction import Reconstruction
from disttrain.parallel.ways import Way
from disttrain.parallel.whole_layers import without_values
from disttrain.parallel.windows import Grid, square_grid
from disttrain.replica import model_tensors, task_calls
from disttrain.replica.model_tensors import OwnPart
from disttrain.replica.pipeline import read
from disttrain.replica.task_calls import TaskCalls
from disttrain.state.layout import ModelLayout, TensorSpec
from disttrain.task import checks
from disttrain.task.errors import LossError, ModelError, TaskError
from disttrain.task.groups import GroupFactors
from disttrain.task.task import Split

Initialise = Callable[[PartOfModel], None]


class Division(NamedTuple):
    """A whole model, and how it is to be divided."""

    model: nn.Module
    replicas: Replicas
    sample: tuple[int, ...]
    """Shape of what the model is called with, but for the first dimension."""
    device: torch.device
    initialise: Initialise | None = None
    """Gives a part its initial values; None: the model has them."""

    def part(self, peers: Communicator) -> Partitioned:
        """One process's part, with memory of its own. Raises ModelError with the layer's name."""
        part = _part(copy.deepcopy(self.model), self.replicas, peers, self.sample)
        if self.initialise is None:
            return part.to(self.device)
        # As Module.to_empty, but what is no part of the model keeps its values.
        part._apply(self._with_memory)  # type: ignore[no-untyped-call]  # noqa: SLF001
        self.initialise(part)
        for name, parameter in part.named_parameters():
            checks.check_finite(name, parameter)
        return part

    def _with_memory(self, tensor: Tensor) -> Tensor:
        made = torch.empty_like(tensor, device=self.device)
        return made if tensor.is_meta else made.copy_(tensor)

    def without_values(self) -> "Division":
        """The same of a model that takes no memory."""
        return self._replace(model=without_values(self.model))

    def own_part(self, part: Partitioned, rank: int) -> OwnPart:
        """What of a part lies in its partition's vectors."""
        return _own_part(part, rank, self.model)

    def layout(
        self,
        precision: Precision,
        groups: Mapping[str, GroupFactors],
        frozen: FrozenParameters,
    ) -> ModelLayout:
        """Of all partitions. Raises ModelError."""
        parts = [self.planned(rank) for rank in range(self.replicas.partitions)]
        return layout_of(parts, self.model, precision, groups, frozen)

    def planned(self, rank: int) -> Partitioned:
        """Another process's part, without memory. Raises ModelError."""
        model, peers = without_values(self.model), Nobody(rank, self.replicas.partitions)
        return _part(model, self.replicas, peers, self.sample)


def made(task: TaskCalls, spec: Spec) -> tuple[nn.Module, Initialise | None]:
    """A job's model, and what gives parts their initial values; None: it has them.

    Frozen parameters of a replica's own are told from others by their values. Raises TaskError.
    """
    if spec.replicas.parts == 1 or spec.task.frozen is FrozenParameters.OWN:
        return task.model(spec.seed), None
    return task.model_to_divide(spec.seed)


def layout_of(
    parts: Sequence[Partitioned],
    model: nn.Module,
    precision: Precision,
    groups: Mapping[str, GroupFactors],
    frozen: FrozenParameters = FrozenParameters.SHARED,
) -> ModelLayout:
    """Of all partitions of a model, in the order of ranks. Raises ModelError."""
    found: list[TensorSpec] = []
    for rank, part in enumerate(parts):
        own = _own_part(part, rank, model)
        found += model_tensors.describe(part, precision, groups, frozen, own).layout.tensors
    return ModelLayout(tensors=tuple(found))


def _own_part(part: Partitioned, rank: int, model: nn.Module) -> OwnPart:
    shapes = {name: tuple(each.shape) for name, each in model_tensors.named(model)}
    return OwnPart(rank, part.pieces, shapes, set(part.own_buffers))


def grid_of(replicas: Replicas) -> Grid:
    """How the partitions of a replica lie; as square as their number lets them, if nobody says."""
    grid = replicas.rows_and_columns
    return square_grid(replicas.partitions) if grid is None else Grid(*grid)


def ways_of(replicas: Replicas) -> Mapping[str, Way]:
    """How layers are divided, by their names."""
    return {**(replicas.partitioning or {}), **(replicas.whole_on or {})}


def _part(
    model: nn.Module, replicas: Replicas, peers: Communicator, sample: Sequence[int]
) -> Partitioned:
    ways, slices = ways_of(replicas), replicas.micro_batches
    try:
        return partition(model, grid_of(replicas), peers, sample, ways, micro_batches=slices)
    except CannotPartition as error:
        said = replicas.given_partitions or replicas.grid
        message = f"{replicas.partitions_field}: {said}: {error}"
        raise ModelError(message) from error


def refusal(job: DistTrainJob, task_folder: Path) -> str:
    """Why a job's model cannot be divided as it asks, as far as this is known without its values.

    Empty where it can be, where its constructor needs values, and where something else is wrong.
    """
    spec = job.spec
    try:
        task = task_calls.load(job, task_folder)
        model = task.model_without_values(spec.seed)
        if model is not None:
            sample = common_sample_shape(task, model)
            Division(model, spec.replicas, sample, torch.device("cpu")).planned(0)
    except (ModelError, LossError) as error:
        return str(error)
    except TaskError:
        # The replicas know better: it may be that they alone have what the task needs.
        return ""
    return ""


_NOT_CALLED = (
    "Task.loss() does not call the model with a tensor, so that nobody knows what a sample of its "
    "input is; let it call model(...), or a loss of disttrain.parallel with the model"
)


class _Seen(Interruption):
    """The model is called: the rest of the loss need not be found."""

    def __init__(self, x: Tensor, loss: Loss) -> None:
        super().__init__()
        self.sample, self.loss = tuple(x.shape[1:]), loss


class _Watched(JointForward):
    """In place of a model's forward()."""

    def __call__(self, *inputs: Any, **named: Any) -> Tensor:
        found = next((x for x in (*inputs, *named.values()) if isinstance(x, Tensor)), None)
        if found is None:
            raise LossError(_NOT_CALLED)
        raise _Seen(found, Loss.OF_OUTPUT)

    def losses(self, objective: Objective, x: Tensor, labels: Tensor | None = None) -> Tensor:
        del labels
        is_of_stacks = isinstance(objective, Reconstruction)
        raise _Seen(x, Loss.OF_STACKS if is_of_stacks else Loss.OF_PARTS)


def sample_shape(task: TaskCalls, model: nn.Module, split: Split = Split.TRAIN) -> tuple[int, ...]:
    """What the task's loss gives its model, but for the first dimension. Raises TaskError.

    The model needs no values, as long as the loss only calls it.
    """
    return planned_sample(task, model, split)[0]


def planned_sample(
    task: TaskCalls, model: nn.Module, split: Split = Split.TRAIN
) -> tuple[tuple[int, ...], Loss]:
    """What a sample is, and what of the output the loss looks at. Raises TaskError."""
    watched = copy.deepcopy(model).eval()
    watched.forward = _Watched()
    examples = task.examples(split, 1)
    indices = list(range(min(2, examples.count)))
    try:
        with torch.no_grad():
            task.loss_sum(watched, task.collate(read(examples.dataset, indices)), len(indices))
    except _Seen as seen:
        return seen.sample, seen.loss
    raise LossError(_NOT_CALLED)


def common_sample_shape(task: TaskCalls, model: nn.Module) -> tuple[int, ...]:
    """Of training and of evaluations, which a divided model can have but one of. As above."""
    trained = sample_shape(task, model)
    tested = sample_shape(task, model, Split.TEST)
    if trained == tested:
        return trained
    message = (
        f"a divided model takes samples of one shape: those of training are {trained}, and those "
        f"of the test split {tested}; give both one shape, or set spec.replicas.partitions to 1"
    )
    raise LossError(message)


def tell_sample(group: Collective, sample: tuple[int, ...]) -> None:
    """Tell all others, each of which asks for it, what shape a sample has. Raises GroupLost."""
    _summed_sample(group, sample)


def told_sample(group: Collective) -> tuple[int, ...]:
    """What the first process tells. Raises GroupLost."""
    return _summed_sample(group, ())


def _summed_sample(group: Collective, sample: tuple[int, ...]) -> tuple[int, ...]:
    """In all processes, of which one has a sample."""
    (dimensions,) = group.sum((len(sample),))
    # A sum of no numbers is none.
    return tuple(group.sum(sample or (0,) * dimensions)) if dimensions else ()


class Nobody(Communicator):
    """Of a partition that is planned, and computes nothing."""

    def _exchange(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> Exchange:
        del outgoing, incoming
        return Done()

    def _reduce(self, tensor: Tensor, *, is_sum: bool) -> Tensor:
        del is_sum
        return tensor
