"""Rows and columns of partitions in a manifest: how many that are, and what disagrees with it."""

import pytest

from builders.jobs import SMALL, a_job, complaints
from disttrain.job import defaults
from disttrain.job.finding import InvalidManifest
from disttrain.job.parsing import parse_job
from disttrain.job.roles import Replicas


def kept(replicas: str) -> str:
    """The manifest that a run keeps."""
    return defaults.written_out_text(a_job(f"spec.replicas={replicas}"))


def changed(text: str, assignment: str) -> Replicas:
    """As `disttrain resume` reads it, with `--set`."""
    return parse_job(text, assignments=[assignment]).spec.replicas


@pytest.mark.parametrize(
    ("replicas", "partitions"),
    [
        ("{}", 1),
        ("{partitions: null}", 1),
        ("{partitions: 3}", 3),
        ("{grid: 1x1}", 1),
        ("{grid: 2x3}", 6),
        ("{partitions: null, grid: 2x3}", 6),
        ("{partitions: 6, grid: 2x3}", 6),
    ],
)
def test_partitions_are_as_many_as_is_said_or_as_the_grid_has(
    replicas: str, partitions: int
) -> None:
    spec = a_job(f"spec.replicas={replicas}").spec
    assert spec.replicas.partitions == spec.replicas.processes == spec.shards == partitions


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        (
            "{partitions: 1, grid: 2x2}",
            "spec.replicas.grid: must be of 1 (spec.replicas.partitions), got 2x2: it is of 4; "
            "leave one of the two out, or set spec.replicas.partitions to 4",
        ),
        ("{grid: 7x6}", "spec.replicas.grid: must be at most 40 in a job, got 42"),
        (
            "{partitions: 42, grid: 7x6}",
            "spec.replicas.partitions: must be at most 40 in a job, got 42",
        ),
        ("{grid: [2, 2]}", "spec.replicas.grid: must be rows and columns, as 2x3, got [2, 2]"),
        ("{grid: 4}", "spec.replicas.grid: must be rows and columns, as 2x3, got 4"),
        ("{grid: 2x0}", "spec.replicas.grid: must be rows and columns, as 2x3, got '2x0'"),
        (
            "{grid: 2by2, partitioning: {a: whole}, wholeOn: {b: 3}}",
            "spec.replicas.grid: must be rows and columns, as 2x3, got '2by2'",
        ),
        (
            "{grid: 1x2, wholeOn: {a: 2}}",
            "spec.replicas.wholeOn: a is to lie on partition 2, and the last one is 1",
        ),
    ],
)
def test_what_is_wrong_is_said_once(replicas: str, said: str) -> None:
    (line,) = complaints(SMALL, f"spec.replicas={replicas}")
    assert line.startswith(f"job.yaml: {said}")


def test_shards_that_are_too_few_name_the_field_that_says_how_many_partitions_there_are() -> None:
    for replicas, field in (("{grid: 2x2}", "grid"), ("{partitions: 4, grid: 2x2}", "partitions")):
        given = (f"spec.replicas={replicas}", "spec.parameterServer.shards=2")
        (line,) = complaints(SMALL, *given)
        assert f"of 4 partitions (spec.replicas.{field})" in line


def test_a_run_goes_on_by_another_grid_or_by_none() -> None:
    text = kept("{grid: 2x2}")
    assert parse_job(text).spec.replicas.partitions == 4
    assert changed(text, "spec.replicas.grid=3x1").partitions == 3
    assert changed(text, "spec.replicas.grid=null").partitions == 1
    assert changed(text, "spec.replicas.partitions=4").partitions == 4


def test_a_number_that_a_run_has_kept_beside_its_grid_stays() -> None:
    text = kept("{partitions: 4, grid: 2x2}")
    assert changed(text, "spec.replicas.grid=null").partitions == 4
    assert changed(text, "spec.replicas.partitions=null").partitions == 4
    with pytest.raises(InvalidManifest, match=r"grid: must be of 4 \(spec.replicas.partitions\)"):
        changed(text, "spec.replicas.grid=3x1")


def test_one_process_needs_a_grid_to_be_taken_away() -> None:
    with pytest.raises(InvalidManifest, match="leave one of the two out"):
        changed(kept("{grid: 2x2}"), "spec.replicas.partitions=1")
