"""The optimizer of torch.optim with which a replica takes its own steps."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from disttrain.job.inner_optimizer import InnerOptimizer
from disttrain.job.length import Extent
from disttrain.job.schedule_kinds import Factor, full_rate
from disttrain.replica.errors import OptimizerRefused
from disttrain.replica.flat_model import FlatModel
from disttrain.state.factors import Factors, within

_FIELD = "spec.strategy.localSteps.optimizer"


def check(config: InnerOptimizer, model: nn.Module) -> None:
    """Raises OptimizerRefused for arguments that torch refuses, with this model or in a step."""
    make(config, [[parameter for parameter in model.parameters() if parameter.requires_grad]])
    tried = nn.Parameter(torch.zeros(2, 2))
    tried.grad = torch.ones(2, 2)
    optimizer = make(config, [[tried]])
    try:
        optimizer.step()
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        raise _refused(config, error) from error


def make(config: InnerOptimizer, groups: Iterable[Sequence[Tensor]]) -> Optimizer:
    """Raises OptimizerRefused."""
    kind = getattr(torch.optim, config.name.value, None)
    if kind is None:
        message = (
            f"{_FIELD}.name: torch.optim.{config.name} needs a newer torch than {torch.__version__}"
            "; install one, or choose another optimizer"
        )
        raise OptimizerRefused(message)
    arguments = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in config.arguments.items()
    }
    try:
        made: Optimizer = kind([{"params": list(each)} for each in groups], **arguments)
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        raise _refused(config, error) from error
    return made


def _refused(config: InnerOptimizer, error: Exception) -> OptimizerRefused:
    return OptimizerRefused(
        f"{_FIELD}.arguments: torch.optim.{config.name} refuses {config.arguments}: {error}; see "
        "its arguments in PyTorch's documentation"
    )


class InnerSteps:
    """Steps of one replica, each at the rate by the samples before it."""

    def __init__(
        self,
        config: InnerOptimizer,
        parameters: Sequence[Tensor],
        factors: Sequence[Factors],
        rates: Factor,
    ) -> None:
        """`factors`: of each parameter. Torch steps all parameters of a group at once."""
        self._config = config
        self._parameters = parameters
        self._factor = rates
        self._groups: dict[tuple[float, float], list[Tensor]] = {}
        for parameter, own in zip(parameters, factors, strict=True):
            self._groups.setdefault((own.learning_rate, own.weight_decay), []).append(parameter)
        if not parameters:
            # Torch wants a group, if nothing is in it.
            self._groups[1.0, 1.0] = []
        self._begin()

    def step(self, present: Sequence[bool], samples: int) -> None:
        """Step by the gradients of the parameters that have one."""
        self._set_rate(samples)
        for parameter, is_there in zip(self._parameters, present, strict=True):
            if not is_there:
                parameter.grad = None
        self._optimizer.step()

    def forget(self) -> None:
        """Begin anew: what is remembered led to parameters that are no numbers.

        Of older versions of torch, some make state when they are made, and cannot step without.
        """
        self._begin()

    def _begin(self) -> None:
        self._optimizer = make(self._config, self._groups.values())
        for group, (rate, decay) in zip(self._optimizer.param_groups, self._groups, strict=True):
            group["lr"] *= rate
            if "weight_decay" in group:
                group["weight_decay"] *= decay
        self._full = [group["lr"] for group in self._optimizer.param_groups]

    def _set_rate(self, samples: int) -> None:
        if self._factor is full_rate:
            return
        factor = self._factor(samples)
        groups: list[dict[str, Any]] = self._optimizer.param_groups
        for group, full in zip(groups, self._full, strict=True):
            group["lr"] = full * factor


class OwnSteps:
    """The flat gradient of one step after the other, and the optimizer that steps by it."""

    def __init__(self, config: InnerOptimizer, model: FlatModel, run: Extent) -> None:
        """`run`: how long the job is, for the schedule."""
        specs = model.tensors.specs(model.vector)
        self._model = model
        self.present = model.watch_gradients()
        self._gradient = torch.zeros_like(model.parameters)
        self._views = [
            self._gradient[spec.first : spec.first + spec.elements].view(spec.shape)
            for spec in specs
        ]
        self._inner = InnerSteps(
            config,
            model.trainable,
            [next(within(model.factors, spec.first, spec.first + 1)) for spec in specs],
            config.schedule.rates(run),
        )

    def begin(self) -> Tensor:
        """Where the step's gradient goes, all zero."""
        self.present.begin_step()
        self._model.collect_gradients_in(self._views)
        return self._gradient.zero_()

    def gather(self) -> None:
        """Bring what backward has made into the flat gradient."""
        self._model.gather_gradients([parameter.grad for parameter in self._model.trainable])

    def step(self, scale: float, count: float | None, samples: int) -> None:
        """Step by the gradient times `scale`, unless nothing counts in it.

        `samples`: those in the parameters, which the rate goes by.
        """
        if scale != 1.0:
            self._gradient.mul_(scale)
        if count != 0:
            self._inner.step(self.present.present, samples)

    def forget(self) -> None:
        self._inner.forget()
