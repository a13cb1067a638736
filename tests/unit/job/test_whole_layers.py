"""Partitions in a manifest: what is refused before anything starts."""

import pytest

from builders.jobs import SMALL, a_job, complaints
from disttrain.job.finding import InvalidManifest


def test_a_layers_partition_is_a_number() -> None:
    replicas = a_job("spec.replicas={partitions: 2, wholeOn: {a: 0, b.c: 1}}").spec.replicas

    assert replicas.whole_on == {"a": 0, "b.c": 1}
    assert replicas.micro_batches is None


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        (
            "{partitions: 2, wholeOn: {a: 0, b: 2}}",
            r"spec\.replicas\.wholeOn: b is to lie on partition 2, and the last one is 1; take "
            r"another one, or set spec\.replicas\.partitions to 3",
        ),
        (
            "{partitions: 3, partitioning: {a: whole, b: 2x2}}",
            r"spec\.replicas\.partitioning: b is to be divided over 2x2, which are 4 partitions, "
            r"and there are 3; take a smaller grid, or set spec\.replicas\.partitions to 4",
        ),
        (
            "{partitions: 2, partitioning: {a: 2x0}}",
            r"spec\.replicas\.partitioning\.a: must be .* a grid as 1x2, got '2x0'",
        ),
        ("{wholeOn: {a: 1}}", r"spec\.replicas\.wholeOn: a is to lie on partition 1"),
        ("{partitions: 2, wholeOn: {a: -1}}", r"spec\.replicas\.wholeOn\.a: .*0"),
        ("{partitions: 2, wholeOn: {a: first}}", r"spec\.replicas\.wholeOn\.a"),
        ("{partitions: 2, wholeOn: {a: true}}", r"spec\.replicas\.wholeOn\.a"),
        (
            "{partitions: 2, partitioning: {a: whole, b: whole}, wholeOn: {b: 1}}",
            r"spec\.replicas\.wholeOn: b is in spec\.replicas\.partitioning, too",
        ),
        (
            "{partitions: 2, microBatches: 2}",
            r"spec\.replicas\.microBatches: means nothing without spec\.replicas\.wholeOn",
        ),
        ("{partitions: 2, wholeOn: {a: 1}, microBatches: 0}", r"spec\.replicas\.microBatches"),
        ("{partitions: 41}", r"spec\.replicas\.partitions: must be at most 40 in a job, got 41"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(replicas: str, message: str) -> None:
    with pytest.raises(InvalidManifest, match=message):
        a_job(f"spec.replicas={replicas}")


def test_partitions_that_are_too_many_are_no_ranks() -> None:
    (line,) = complaints(SMALL, "spec.replicas.partitions=41")
    assert "spec.replicas.partitions" in line


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "spec.parameterServer.shards=1",
            r"spec\.parameterServer\.shards: must be at least 2, got 1: .* 2 partitions .* out",
        ),
        *(
            (
                f"spec.strategy={{localSteps: {{optimizer: {{name: {name}}}}}}}",
                rf"spec\.strategy\.localSteps\.optimizer.*{name}",
            )
            for name in ("Muon", "Adafactor")
        ),
    ],
)
def test_what_partitions_cannot_do_is_refused(more: str, message: str) -> None:
    a_job(more)
    with pytest.raises(InvalidManifest, match=message):
        a_job("spec.replicas.partitions=2", more)


def test_each_partition_has_a_shard_if_nobody_says_how_many() -> None:
    assert a_job("spec.parameterServer.shards=null").spec.shards == 1
    divided = a_job("spec.parameterServer.shards=null", "spec.replicas.partitions=3")
    assert divided.spec.shards == 3
