"""Training in one process without DistTrain's processes: what a run is compared with."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch.optim import SGD, Optimizer
from torch.utils.data import default_collate

import disttrain
from disttrain import Batch, Split
from disttrain.coordinator.leases import permutation
from disttrain.replica import task_calls
from disttrain.task import checks

AfterBackward = Callable[[nn.Module], None]
AfterStep = Callable[[], None]
Rate = Callable[[int], float]
"""From samples to a learning rate."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """The batches that a job's only replica sees, and the numbers that its steps draw."""

    task: disttrain.Task
    epochs: int = 2
    portion_size: int = 80
    batch_size: int = 8
    seed: int = 0

    def model(self) -> nn.Module:
        """The model as it is before the first step."""
        torch.manual_seed(self.seed)
        return self.task.model()

    def batches(self) -> Iterator[Batch]:
        """Each batch; the generator that dropout draws from is seeded for it."""
        dataset = self.task.dataset(Split.TRAIN)
        samples = len(dataset)  # type: ignore[arg-type]
        portions = permutation.portion_count(samples, self.portion_size)
        for epoch in range(self.epochs):
            for portion in permutation.portion_order(self.seed, portions, epoch):
                indices = permutation.portion_indices(
                    self.seed, samples, self.portion_size, portion, epoch
                ).tolist()
                for first in range(0, len(indices), self.batch_size):
                    chosen = indices[first : first + self.batch_size]
                    torch.manual_seed(task_calls.batch_seed(self.seed, epoch, portion, first))
                    yield default_collate([dataset[index] for index in chosen])


def _nothing(*_: object) -> None:
    pass


def plain_loop(
    course: Course,
    optimizer: Callable[[Iterator[nn.Parameter]], Optimizer],
    after_backward: AfterBackward = _nothing,
    scheduler: Callable[[Optimizer], AfterStep] = lambda _: _nothing,
) -> nn.Module:
    """What everybody writes: a model, an optimizer, batch after batch."""
    model = course.model()
    steps = optimizer(model.parameters())
    adjust_rate = scheduler(steps)
    for batch in course.batches():
        steps.zero_grad()
        checks.check_loss(course.task.loss(model, batch)).mean.backward()  # type: ignore[no-untyped-call]
        after_backward(model)
        steps.step()
        adjust_rate()
    return model


def rounding_loop(course: Course, rate: float) -> nn.Module:
    """SGD on kept parameters, by rounded gradients that were computed on rounded ones."""
    model, kept = course.model(), course.model()
    for batch in course.batches():
        for rounded, exact in zip(model.parameters(), kept.parameters(), strict=True):
            rounded.data.copy_(exact.data.bfloat16())
        model.zero_grad()
        checks.check_loss(course.task.loss(model, batch)).mean.backward()  # type: ignore[no-untyped-call]
        for rounded, exact in zip(model.parameters(), kept.parameters(), strict=True):
            exact.data.add_(_gradient(rounded).bfloat16().float(), alpha=-rate)
    return kept


def algorithm_1_1(course: Course, rate: Rate, *, push_every: int, fetch_every: int) -> nn.Module:
    """DistBelief's appendix with one replica, a server of plain SGD, and nothing in flight.

    Every rate goes by the samples before it: in the parameters that the step or push begins with.
    """
    model, server = course.model(), course.model()
    trained, served = list(model.parameters()), list(server.parameters())
    accrued = [torch.zeros_like(parameter) for parameter in trained]
    samples_trained = samples_served = samples_accrued = 0
    for step, batch in enumerate(course.batches()):
        if step % fetch_every == 0:
            for new, old in zip(served, trained, strict=True):
                old.data.copy_(new.data)
            samples_trained = samples_served
        model.zero_grad()
        checks.check_loss(course.task.loss(model, batch)).mean.backward()  # type: ignore[no-untyped-call]
        for total, parameter in zip(accrued, trained, strict=True):
            total.add_(_gradient(parameter))
        SGD(trained, rate(samples_trained)).step()
        samples_trained += len(batch[0])
        samples_accrued += len(batch[0])
        if step % push_every == 0:
            _push(accrued, served, rate(samples_served))
            samples_served, samples_accrued = samples_served + samples_accrued, 0
    _push(accrued, served, rate(samples_served))
    return server


def _push(accrued: list[Tensor], served: list[nn.Parameter], rate: float) -> None:
    for total, parameter in zip(accrued, served, strict=True):
        parameter.data.add_(total, alpha=-rate)
        total.zero_()


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def evaluated(task: disttrain.Task, model: nn.Module) -> dict[str, float]:
    """The measures of the test split, and the loss, as means over the samples."""
    dataset = task.dataset(Split.TEST)
    samples = len(dataset)  # type: ignore[arg-type]
    batch = task.collate([dataset[index] for index in range(samples)])
    model.eval()
    with torch.no_grad():
        measures = {name: float(value) for name, value in task.measure(model, batch).items()}
        means = {name: value / samples for name, value in measures.items()}
        return means | {
            "loss": checks.check_loss(task.loss(model, batch), of_a_step=False).mean.item()
        }


def distance(found: Mapping[str, Tensor], model: nn.Module) -> float:
    """From a model's parameters: the norm of the difference over the norm."""
    wanted = parameters_to_vector(model.parameters()).detach().double()
    got = torch.cat([found[name].flatten().double() for name, _ in model.named_parameters()])
    return float((got - wanted).norm() / wanted.norm())
