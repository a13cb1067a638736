"""Local steps in a replica."""

from torch import nn

from disttrain.job.length import Extent
from disttrain.job.spec import Spec
from disttrain.job.strategies import local_steps as manifests
from disttrain.job.strategy_kind import StrategyKind
from disttrain.replica import inner_optimizer
from disttrain.replica.connection import Connection
from disttrain.replica.errors import OptimizerRefused
from disttrain.replica.local_steps import LocalStepper
from disttrain.replica.pace import MeasuredPace
from disttrain.replica.stepped_training import MakePace, SteppedTraining
from disttrain.state import fragments


class LocalTraining(SteppedTraining):
    """See `training.Training`."""

    of = manifests.LocalSteps

    @staticmethod
    def check_model(strategy: StrategyKind, model: nn.Module) -> None:
        """Raises OptimizerRefused, before anybody joins."""
        assert isinstance(strategy, manifests.LocalSteps)  # noqa: S101  The registry has asked.
        inner_optimizer.check(strategy.optimizer, model)
        elements = sum(each.numel() for each in model.parameters() if each.requires_grad)
        if strategy.fragments > fragments.most(elements):
            message = (
                f"spec.strategy.localSteps.fragments: each has {fragments.LEAST_ELEMENTS} "
                f"parameters or more, and the model trains {elements}, got {strategy.fragments}; "
                f"take {fragments.most(elements)} or fewer"
            )
            raise OptimizerRefused(message)

    @staticmethod
    def outgoing_buffers(spec: Spec) -> int:
        del spec
        return 1

    @staticmethod
    def stepper(
        connection: Connection, spec: Spec, run: Extent, pace: MakePace = MeasuredPace
    ) -> LocalStepper:
        del pace
        return LocalStepper(connection, spec.strategy.only_local_steps, run)
