"""What cannot be done in this place."""

import pytest

from builders.jobs import a_job
from disttrain.job import support


def test_a_plain_job_runs_anywhere() -> None:
    assert support.on_a_cluster(a_job()) == []


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
    (finding,) = support.on_a_cluster(job)
    assert str(finding).startswith(expected)


@pytest.mark.parametrize(
    ("length", "count", "partitions", "is_refused"),
    [
        (40, 1000, 2, False),
        (40, 1001, 2, True),
        (40, 4096, 1, False),
        (39, 4096, 40, False),
    ],
)
def test_replicas_of_several_processes_have_names(
    length: int, count: int, partitions: int, *, is_refused: bool
) -> None:
    replicas = f"spec.replicas={{count: {count}, partitions: {partitions}}}"
    found = support.on_a_cluster(a_job(f"metadata.name={'x' * length}", replicas))

    assert bool(found) is is_refused
    if is_refused:
        (finding,) = map(str, found)
        assert "spec.replicas.count: must be at most 1000 for replicas of several" in finding
        assert "give the job a shorter name" in finding
