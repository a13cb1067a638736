"""Every sample is in exactly one portion, whatever the epoch; order and inside differ."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from disttrain.coordinator.leases import permutation


@settings(deadline=None)
@given(
    samples=st.integers(1, 300),
    portion_size=st.integers(1, 50),
    seed=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 3),
)
def test_portions_hold_every_sample_once(
    samples: int, portion_size: int, seed: int, epoch: int
) -> None:
    count = permutation.portion_count(samples, portion_size)
    portions = [
        permutation.portion_indices(seed, samples, portion_size, portion, epoch)
        for portion in range(count)
    ]
    assert sorted(np.concatenate(portions).tolist()) == list(range(samples))
    assert [len(portion) for portion in portions] == [
        permutation.portion_samples(samples, portion_size, portion) for portion in range(count)
    ]


def test_portions_of_data_in_order_are_neighbours_in_every_epoch() -> None:
    portions = permutation.portions_of(5, 25, 10, in_order=True)
    for epoch in range(2):
        assert [portions(portion, epoch).tolist() for portion in range(3)] == [
            list(range(10)),
            list(range(10, 20)),
            list(range(20, 25)),
        ]


def test_a_portion_keeps_its_samples_over_the_epochs_in_another_order() -> None:
    first = permutation.portion_indices(1, 1000, 100, 3, 0)
    second = permutation.portion_indices(1, 1000, 100, 3, 1)
    assert sorted(first.tolist()) == sorted(second.tolist())
    assert first.tolist() != second.tolist()
    assert first.dtype == np.int64


def test_the_order_of_portions_differs_between_epochs_and_seeds() -> None:
    orders = [permutation.portion_order(seed, 50, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4


def test_the_same_seed_gives_the_same_indices() -> None:
    once = permutation.portion_indices(9, 64, 16, 1, 2)
    again = permutation.portion_indices(9, 64, 16, 1, 2)
    assert once.tolist() == again.tolist()


def test_the_default_portion_is_a_multiple_of_the_batch_within_limits() -> None:
    assert permutation.default_portion_size(50_000, 64, 2) == 64 * 48
    assert permutation.default_portion_size(1_000_000, 64, 1) == 64 * 64
    assert permutation.default_portion_size(100, 32, 3) == 32 * 4


def test_the_order_is_that_of_eight_bytes_and_kept_in_four() -> None:
    whole = np.random.default_rng([7, 0]).permutation(np.arange(1000, dtype=np.int64))
    kept = permutation._cut(7, 1000)
    assert kept.itemsize == 4
    assert kept.tolist() == whole.tolist()
    assert permutation.portion_indices(7, 1000, 10, 3, 0).dtype == np.int64
