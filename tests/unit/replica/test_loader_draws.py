"""What a model draws must not depend on the pipeline beside it."""

import torch
from torch.utils.data import TensorDataset

from disttrain.coordinator.leases import permutation
from disttrain.coordinator.protocol.fields import Lease
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.pipeline import Pipeline, PipelineConfig
from disttrain.replica.work import Cutting, WorkSource


class TwoLeases(WorkSource):
    """Gives a lease, then waits for the next: the loader begins twice."""

    def __init__(self) -> None:
        self.ended = self.dry = False
        self._left = [
            Lease(id=number, epoch=0, portion=number - 1, first=0, end=4) for number in (2, 1)
        ]

    def next_now(self) -> Lease | None:
        return None

    def next_within(self, seconds: float) -> Lease | None:  # noqa: ARG002  It never waits.
        self.ended = not self._left
        return self._left.pop() if self._left else None


def test_the_pipeline_leaves_the_generator_of_the_model_alone() -> None:
    dataset = TensorDataset(torch.arange(8.0))
    cutting = Cutting(
        batch_size=4,
        portion_indices=lambda portion, epoch: permutation.portion_indices(0, 8, 4, portion, epoch),
    )
    torch.manual_seed(1)
    before = torch.default_generator.get_state()

    pipeline = Pipeline(
        dataset, lambda batch: batch, TwoLeases(), cutting, PipelineConfig(), Cancellation()
    )
    batches = [pipeline.next(10.0) for _ in range(2)]

    assert all(loaded is not None for loaded in batches)
    assert torch.equal(torch.default_generator.get_state(), before)
