"""Jobs whose models cannot be divided as they ask: who refuses them, when, and in which words."""

from pathlib import Path

import pytest

from builders.divided_jobs import LOCAL_STEPS, MANIFEST
from builders.runs import RunningJob, set_field

IN_RANKS = ("spec.replicas={ranks: 2, inner: fsdp2, device: cpu, threads: 1}", *LOCAL_STEPS)
ROWS_ALONE = ("a rank has all of a parameter only while the model computes", "let inner be ddp")


@pytest.mark.parametrize(
    ("assignments", "said"),
    [
        (
            ("spec.replicas.partitions=9", "spec.parameterServer.shards=null"),
            ("head: 6 outputs cannot be divided over 9 partitions", "head: whole"),
        ),
        (
            ("spec.replicas={grid: 7x1}", "spec.parameterServer.shards=null"),
            (
                "spec.replicas.grid: 7x1: layer pool: its output of 5 x 4 cannot be divided "
                "over 7 x 1 partitions",
            ),
        ),
        (
            ("spec.replicas={partitions: 2, partitioning: {filters: features}}",),
            ("partitioning.filters: features is not possible for this layer",),
        ),
        (
            ("spec.replicas={partitions: 2, partitioning: {heads: whole}}",),
            ("partitioning.heads: the model has no such layer; did you mean head?",),
        ),
        (
            (
                "spec.replicas={partitions: 2, partitioning: {heads: whole}}",
                "spec.task.entrypoint=small_images:Huge",
            ),
            ("partitioning.heads: the model has no such layer",),
        ),
        (
            ("spec.replicas.partitions=2", "spec.task.entrypoint=divided_images:Unordered"),
            ("the model is a Around; only an nn.Sequential",),
        ),
        (
            ("spec.replicas.partitions=2", "spec.task.entrypoint=divided_images:Elsewhere"),
            ("Task.model(): head.weight: it is on cuda:0, and hidden.bias on cpu; move the whole",),
        ),
        (
            ("spec.replicas={partitions: 2, partitioning: {pool: 2x2}}",),
            ("spec.replicas.partitioning: pool is to be divided over 2x2", "there are 2"),
        ),
        (
            ("spec.replicas={partitions: 4, partitioning: {head: 1x2}}",),
            ("partitioning.head: 1x2 is not possible for this layer",),
        ),
        (
            ("spec.replicas={partitions: 2}", "spec.parameterServer.shards=1"),
            ("must be at least 2, got 1", "each of 2 partitions (spec.replicas.partitions)"),
        ),
        (
            ("spec.replicas={partitions: 4, grid: 1x3}",),
            ("spec.replicas.grid: must be of 4 (spec.replicas.partitions), got 1x3",),
        ),
        (
            ("spec.replicas={partitioning: {head: whole}}",),
            ("spec.replicas.partitioning: means nothing with one partition",),
        ),
        (
            ("spec.replicas={partitions: 2, partitioning: {head: rows}}",),
            ("spec.replicas.partitioning.head", "rows"),
        ),
        (
            ("spec.replicas={partitions: 2, wholeOn: {filters: 0, norm: 1}}",),
            ("norm: a BatchNorm2d has statistics of a whole batch", "set microBatches to 1"),
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(
    tmp_path: Path, assignments: tuple[str, ...], said: tuple[str, ...]
) -> None:
    with RunningJob(tmp_path, assignments, MANIFEST) as job:
        assert job.wait() == 2
        for each in said:
            assert each in job.printed()
        # Processes are told of their roles, and log, in this folder.
        assert not job.output.exists()


def test_a_run_that_stopped_stays_what_it_is_if_it_cannot_be_divided_as_set(tmp_path: Path) -> None:
    slow = ("spec.task.arguments={step_seconds: 0.1}", "spec.stop.epochs=1000")
    with RunningJob(tmp_path, slow, MANIFEST) as job:
        job.wait_until(lambda status: status.get("samples", 0) >= 16)
        job.interrupt()
        job.wait()
        set_field(job.output, "replicas", {"partitions": 2, "partitioning": {"heads": "whole"}})
        before = contents(job.output)
        with RunningJob.resumed(job.output) as refused:
            assert refused.wait() == 2
            assert "partitioning.heads: the model has no such layer" in refused.printed()
        assert contents(job.output) == before
        job.assert_promises_held()


def test_a_task_that_ends_the_look_at_its_model_is_left_to_the_replicas(tmp_path: Path) -> None:
    dying = (
        "spec.task.entrypoint=divided_images:DyingOnce",
        f"spec.task.arguments={{folder: {tmp_path}}}",
        "spec.replicas.partitions=2",
    )
    with RunningJob(tmp_path, dying, MANIFEST) as job:
        assert job.wait() == 0, job.printed()
        assert (tmp_path / "died").exists()
        assert set(job.summary()["restarts"].values()) == {0}
        job.assert_promises_held()


def contents(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize(
    ("assignments", "said"),
    [
        (
            (*IN_RANKS, "spec.task.entrypoint=divided_images:Penalised"),
            ROWS_ALONE,
        ),
        (
            (*IN_RANKS, "spec.task.entrypoint=divided_images:Penalised", "spec.evaluation={}"),
            ROWS_ALONE,
        ),
        (
            (*IN_RANKS, "spec.task.entrypoint=divided_images:Bypassing", "spec.evaluation={}"),
            ROWS_ALONE,
        ),
        (
            ("spec.replicas.partitions=2", "spec.task.entrypoint=divided_images:Decaying"),
            ("may call the model, or give it to a loss of disttrain.parallel",),
        ),
        (
            (
                "spec.replicas={partitions: 2, partitioning: {heads: whole}}",
                "spec.task.entrypoint=divided_images:Drawing",
            ),
            ("partitioning.heads: the model has no such layer; did you mean head?",),
        ),
        (
            ("spec.replicas.partitions=2", "spec.task.entrypoint=divided_images:Growing"),
            ("a divided model takes samples of one shape: it was divided for (2, 10, 9)",),
        ),
    ],
    ids=["fsdp2", "fsdp2-evaluated", "fsdp2-bypassed", "a-penalty", "made-whole", "growing"],
)
def test_what_only_replicas_find_is_refused_there(
    tmp_path: Path, assignments: tuple[str, ...], said: tuple[str, ...]
) -> None:
    with RunningJob(tmp_path, assignments, MANIFEST) as job:
        assert job.wait() == 1
        for each in said:
            assert each in job.printed()
