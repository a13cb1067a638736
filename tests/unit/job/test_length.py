"""How long a run is, by what ends it first."""

import pytest

from disttrain.job import length
from disttrain.job.length import Extent
from disttrain.job.stop import Stop

BATCH = 8


@pytest.mark.parametrize(
    ("stop", "train_samples", "samples"),
    [
        (Stop(epochs=2), 45, 90),
        (Stop(epochs=2, samples=100), 45, 90),
        (Stop(epochs=2, samples=100), 55, 100),
        (Stop(epochs=2, samples=100), None, None),
        (Stop(steps=10, samples=100), None, 80),
        (Stop(steps=10, samples=75), 45, 75),
        (Stop(epochs=2), None, None),
    ],
)
def test_a_run_is_as_long_as_its_first_end(
    stop: Stop, train_samples: int | None, samples: int | None
) -> None:
    found = length.extent(stop, BATCH, train_samples)
    assert found == Extent(samples=samples, epoch=train_samples, has_end=True)


def test_a_run_that_only_time_ends_has_no_end_to_go_by() -> None:
    assert length.extent(Stop(seconds=5.0), BATCH, 45) == Extent(epoch=45, has_end=False)


def test_only_a_run_by_epochs_alone_is_counted_in_them_before_its_data_is_known() -> None:
    unknown = Extent()
    epochs = Extent(samples=2, epoch=1, counts_epochs=True)
    assert list(length.without_data(Stop(epochs=2), BATCH)) == [unknown, epochs]
    assert list(length.without_data(Stop(epochs=2, samples=100), BATCH)) == [unknown]
