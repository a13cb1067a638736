"""However the data is cut into groups and the vectors into shards: the same but for rounding."""

import numpy as np
import pytest

from builders.batch_problems import RULES, Vector
from builders.sampled_jobs import BatchJob, regression
from disttrain.sandblaster.batch.driver import Driver, DriverRules
from disttrain.sandblaster.batch.groups import BackupRules
from disttrain.sandblaster.descent import Descent
from disttrain.sandblaster.lbfgs import Lbfgs

SAMPLES, ITERATIONS = 150, 12


def points(group_samples: int, shards: int = 1, replicas: int = 1, seed: int = 0) -> list[Vector]:
    """Accepted ones of full-batch L-BFGS."""
    problem = regression(samples=SAMPLES, group_samples=group_samples)
    rules = DriverRules(groups=problem.groups, backup=BackupRules(start_when_remaining=3))
    job = BatchJob(problem, Driver(Descent(RULES, Lbfgs()), rules), shards, replicas, seed)
    job.run(lambda _: len(job.points) > ITERATIONS)
    return job.points


def assert_close(found: list[Vector], reference: list[Vector]) -> None:
    for one, wanted in zip(found[1:], reference[1:], strict=True):
        assert np.linalg.norm(one - wanted) <= 1e-10 * np.linalg.norm(wanted)


@pytest.mark.parametrize("group_samples", [1, 7, 32, 149])
def test_any_size_of_portions_gives_the_same_iterates(group_samples: int) -> None:
    """One group that holds all the data is the reference: nothing is summed in parts."""
    assert_close(points(group_samples), points(SAMPLES))


@pytest.mark.parametrize("shards", [2, 3, 5])
def test_any_number_of_shards_gives_the_same_iterates(shards: int) -> None:
    assert_close(points(32, shards), points(32))


@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
def test_any_number_of_replicas_gives_the_same_bits(replicas: int) -> None:
    """Whichever shard of five answers first, too."""
    reference = points(10, shards=5)

    found = points(10, shards=5, replicas=replicas, seed=replicas)

    assert [one.tobytes() for one in found] == [one.tobytes() for one in reference]
