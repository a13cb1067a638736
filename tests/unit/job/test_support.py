"""What cannot be done yet, or not in this place."""

import pytest

from builders.jobs import a_job
from disttrain.job import support

TOO_MANY_PARTITIONS = (
    "spec.replicas.partitions: model parallelism is not supported yet: must be 1, got 2"
)


def test_a_plain_job_runs_anywhere() -> None:
    assert support.on_one_machine(a_job()) == support.on_a_cluster(a_job()) == []


def test_model_parallelism_is_not_there_yet() -> None:
    job = a_job("spec.replicas.partitions=2")
    assert [str(finding) for finding in support.on_one_machine(job)] == [TOO_MANY_PARTITIONS]
    assert [str(finding) for finding in support.on_a_cluster(job)] == [TOO_MANY_PARTITIONS]


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        (
            "spec.transport=sharedMemory",
            "spec.transport.kind: pods share no memory: must be auto or tcp, got sharedMemory",
        ),
        ("spec.checkpoint.uri=/data", "spec.checkpoint.uri: must be a relative path"),
        ("spec.checkpoint.uri='file:///data'", "spec.checkpoint.uri: must be a relative path"),
        ("spec.checkpoint.uri='local:///data'", "spec.checkpoint.uri: must be a relative path"),
        ("spec.checkpoint.uri='asynclocal:///d'", "spec.checkpoint.uri: must be a relative path"),
    ],
)
def test_what_pods_do_not_share_is_for_one_machine(assignment: str, expected: str) -> None:
    job = a_job(assignment)
    assert support.on_one_machine(job) == []
    (finding,) = support.on_a_cluster(job)
    assert str(finding).startswith(expected)
