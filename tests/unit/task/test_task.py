import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import disttrain
from disttrain import Batch, InputPipeline, Split


class Smallest(disttrain.Task):
    """Only what is required."""

    def model(self) -> nn.Module:
        return nn.Linear(1, 1)

    def dataset(self, split: Split) -> Dataset[Tensor]:
        return WholeBatches(train=split == "train")

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        loss: Tensor = model(batch).mean()
        return loss


class WholeBatches(Dataset[Tensor]):
    def __init__(self, *, train: bool) -> None:
        self.values = torch.arange(8.0 if train else 4.0)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Tensor:
        return self.values[index]

    def __getitems__(self, indices: list[int]) -> Tensor:
        return self.values[indices]


def test_a_split_is_equal_to_its_text() -> None:
    assert [str(split) for split in Split] == ["train", "test"]
    assert {Split.TRAIN: 1}["train"] == 1  # type: ignore[index]  # A text is no Split to mypy.


def test_nothing_is_measured_by_default() -> None:
    task = Smallest()
    assert task.measure(task.model(), torch.zeros(1)) == {}


def test_samples_are_stacked_by_default() -> None:
    images, labels = Smallest().collate([(torch.zeros(2), 1), (torch.ones(2), 2)])
    assert images.tolist() == [[0, 0], [1, 1]]
    assert labels.tolist() == [1, 2]


def test_a_batch_that_the_data_set_made_is_left_as_it_is() -> None:
    task = Smallest()
    loader = DataLoader(task.dataset(Split.TEST), batch_size=3, collate_fn=task.collate)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3]]


def test_the_input_pipeline_is_a_thread_with_two_batches_ready() -> None:
    assert Smallest().input_pipeline() == InputPipeline(workers=0, prefetch=2)


@pytest.mark.parametrize("wrong", [{"workers": -1}, {"prefetch": 0}])
def test_an_impossible_input_pipeline_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 0 workers and prefetches at least 1 batch, got"):
        InputPipeline(**wrong)
