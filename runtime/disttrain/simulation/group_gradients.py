"""Gradients of groups of portions, as a replica of a batch method computes them."""

from collections.abc import Mapping

from torch import Tensor

from disttrain.coordinator.leases import permutation
from disttrain.coordinator.protocol.fields import Lease
from disttrain.coordinator.protocol.messages import GroupLease
from disttrain.job.strategies.sandblaster import Sandblaster
from disttrain.replay import final_values
from disttrain.replay.replica import Learner
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.flat_vector import FlatVector
from disttrain.replica.groups import GroupSum
from disttrain.replica.strategies.sandblaster import add_portion
from disttrain.replica.work import Cutting
from disttrain.simulation.setting import Setting
from disttrain.state.vector import Vector


class GroupGradients:
    """Of one model, which is at one point at a time."""

    def __init__(self, setting: Setting, initial: Mapping[Vector, Tensor]) -> None:
        """`initial`: the model's whole vectors, of which buffers and frozen ones stay."""
        rule = setting.spec.strategy.rule
        assert isinstance(rule, Sandblaster)  # noqa: S101  Who makes it has asked.
        self._learner = Learner(setting, outgoing_buffers=1)
        final_values.take_over(self._learner, initial)
        (self._gradient,) = self.model.gradients(1)
        self._seed = setting.seed
        self._portion = rule.portion_size
        self._of_a_group = rule.push_every_portions
        self._samples = setting.train_samples
        indices = permutation.portions_of(
            setting.seed, self._samples, self._portion, in_order=bool(setting.sources)
        )
        self._cutting = Cutting(batch_size=self._portion, portion_indices=indices)

    @property
    def model(self) -> FlatModel:
        return self._learner.model

    @property
    def count(self) -> int:
        """Groups that the data makes."""
        return -(-self._portions // self._of_a_group)

    def samples(self, group: int) -> list[int]:
        """Of each of its portions."""
        portions = range(*self._portions_of(group))
        return [permutation.portion_samples(self._samples, self._portion, one) for one in portions]

    def move_to(self, point: Tensor) -> None:
        """Compute at these trained parameters from here on."""
        model = self.model
        FlatVector(model.trial_into(), point.dtype).host.copy_(point)
        model.land_trial()
        model.adopt(buffers=False)

    def of(self, group: int) -> tuple[GroupSum, Tensor]:
        """A group's sums of loss and gradient; the gradient is valid until the next call.

        Raises TaskError, LossError.
        """
        model, first = self.model, self._gradient.gradient
        first.tensor.zero_()
        model.collect_gradients_in(self._gradient.gradient_views)
        portions = self._portions_of(group)
        lease = GroupLease(attempt=1, group=group, evaluation=1, portions=portions, shards=())
        found = GroupSum(number=1, group=lease, gradient=self._gradient, next_portion=portions[0])
        for portion, samples in zip(range(*portions), self.samples(group), strict=True):
            whole = Lease(id=1, epoch=0, portion=portion, first=0, end=samples)
            for item in self._cutting.items(whole):
                model.restore_buffers()
                loaded = self._learner.batches[item]
                add_portion(model, found, loaded, self._learner.loss, self._seed)
        first.leave()
        first.wait_left()
        return found, first.host

    @property
    def _portions(self) -> int:
        return permutation.portion_count(self._samples, self._portion)

    def _portions_of(self, group: int) -> tuple[int, int]:
        begin = group * self._of_a_group
        return begin, min(begin + self._of_a_group, self._portions)
