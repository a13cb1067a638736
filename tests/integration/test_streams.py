"""Data in sources that are read in order: every record is trained once per epoch, whoever dies."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import psutil
import pytest
from safetensors.torch import load_file

from builders import batch_jobs, corpora, object_stores
from builders.at_night import others_at_night
from builders.batch_jobs import BATCH_JOB
from builders.runs import COUNTING, RunningJob
from builders.warm_processes import WarmCommand
from tasks.counting import SOURCES

SAMPLES, EPOCHS = 1024, 2
STREAMING = COUNTING.replace("counting:Counting", "counting:Streaming").replace(
    "batchSize: 8", "batchSize: 8\n  portionSize: 64"
)
LOCAL_STEPS = STREAMING.replace(
    """\
    downpour:
      localLearningRate: 0
      optimizer: {sgd: {learningRate: 1.0}}
""",
    """\
    localSteps:
      steps: 4
      optimizer: {name: SGD, arguments: {lr: 1.0}}
""",
)
FROM_FILES = STREAMING.replace("counting:Streaming", "counting:CountingFiles")
SLOW = "spec.task.arguments={step_seconds: 0.02}"


def half_way(status: dict[str, Any]) -> bool:
    together = status.get("liveReplicas") == 2 and status.get("checkpoints", 0) >= 1
    return bool(together and status.get("samples", 0) >= SAMPLES // 2)


def came_back(status: dict[str, Any]) -> bool:
    return bool(status["liveReplicas"] == 2 and status["restarts"]["replica"] == 1)


def assert_every_record_was_trained(job: RunningJob) -> None:
    """As often as the epochs say, and more only as often as the summary says."""
    counts = load_file(job.output / "model.safetensors")["counts"]
    summary = job.summary()
    assert summary["samples"] == EPOCHS * SAMPLES
    assert int(counts.min()) >= EPOCHS, f"records were skipped: {counts}"
    repeated, most = int(counts.sum()) - EPOCHS * SAMPLES, summary["samplesRepeated"]
    assert most - summary["samplesPartiallyApplied"] <= repeated <= most
    job.assert_promises_held()


@pytest.mark.parametrize("workers", others_at_night(2, 0))
def test_every_record_is_trained_once_per_epoch(workers: int, tmp_path: Path) -> None:
    """Empty sources, sources of one record, and batches over the end of a source included."""
    arguments = f"spec.task.arguments={{workers: {workers}}}"
    with RunningJob(tmp_path, [arguments], STREAMING) as job:
        assert job.wait() == 0, job.printed()
        assert load_file(job.output / "model.safetensors")["counts"].eq(EPOCHS).all()
        assert job.summary()["samplesRepeated"] == 0
        assert_every_record_was_trained(job)


@pytest.mark.parametrize("role", ["replica-0", *others_at_night("coordinator", "shard-1")])
def test_whoever_is_killed_no_record_is_left_out(role: str, tmp_path: Path) -> None:
    with RunningJob(tmp_path, [SLOW], STREAMING) as job:
        job.wait_until(half_way)
        job.kill(role)
        assert job.wait() == 0, job.printed()
        # What a shard's death rolled back is in no count: the summary and the audit tell it.
        if role != "shard-1":
            assert_every_record_was_trained(job)
        job.assert_promises_held()


def test_a_resumed_job_goes_on_in_the_midst_of_the_sources(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [SLOW], STREAMING) as job:
        job.wait_until(half_way)
        job.interrupt()
        job.wait()
    with RunningJob.resumed(job.output) as job:
        assert job.wait() == 0, job.printed()
        assert_every_record_was_trained(job)


def test_sources_that_changed_before_a_resume_are_refused(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [SLOW], STREAMING) as job:
        job.wait_until(half_way)
        job.interrupt()
        job.wait()
    task = tmp_path / "counting.py"
    task.write_text(task.read_text().replace("SOURCES = (0, 300, 7,", "SOURCES = (0, 299, 8,"))
    with RunningJob.resumed(job.output) as job:
        assert job.wait() != 0
        assert "sources of training data have other names or numbers" in job.printed()
        job.assert_promises_held()


@pytest.mark.parametrize("format_", corpora.FORMATS)
def test_records_of_files_are_trained_once_per_epoch(format_: str, tmp_path: Path) -> None:
    place = tmp_path / "corpus"
    corpora.write(place, format_, SOURCES)
    arguments = f"spec.task.arguments={{format_: {format_}, place: {place}}}"
    with RunningJob(tmp_path, [arguments], FROM_FILES) as job:
        assert job.wait() == 0, job.printed()
        assert load_file(job.output / "model.safetensors")["counts"].eq(EPOCHS).all()
        assert_every_record_was_trained(job)


@pytest.fixture(name="bucket")
def _bucket() -> Iterator[str]:
    with object_stores.s3_server() as uri:
        yield uri


@pytest.mark.landing
def test_no_record_of_a_bucket_is_left_out_when_a_replica_is_killed(
    bucket: str, tmp_path: Path
) -> None:
    place = f"{bucket}/corpus"
    filesystem, root = fsspec.url_to_fs(place)
    filesystem.pipe({f"{root}/{name}": file for name, file in corpora.files("tar", SOURCES)})
    gate = tmp_path / "gate"
    arguments = f"spec.task.arguments={{format_: tar, place: '{place}', gate: '{gate}'}}"
    with RunningJob(tmp_path, [arguments], FROM_FILES) as job:
        job.wait_until(half_way)
        job.kill("replica-0")
        job.wait_until(came_back)
        gate.touch()
        assert job.wait() == 0, job.printed()
        assert_every_record_was_trained(job)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("plain", "or a stream that extends disttrain.Sources, got a OneWay without __len__"),
        ("sources", "OneWaySources.read(2, 1) of the source 'part-2' gave the samples from number"),
    ],
    ids=["plain", "sources"],
)
def test_a_stream_that_cannot_begin_in_its_midst_is_refused_before_a_step(
    kind: str, said: str, tmp_path: Path
) -> None:
    """Nothing of it was trained that an audit could look at."""
    manifest = STREAMING.replace("counting:Streaming", "counting:StreamingOneWay")
    with RunningJob(tmp_path, [f"spec.task.arguments={{kind: {kind}}}"], manifest) as job:
        assert job.wait() == 1, job.printed()
        assert "spec.task.entrypoint: Task.dataset('train') " in job.printed()
        assert said in job.printed()
        summary = job.summary()
        assert (summary["phase"], summary["reason"]) == ("Failed", "TaskError")
        assert summary.get("samples", 0) == 0
        assert not any(map(psutil.pid_exists, job.pids()))


def test_local_steps_read_sources_too(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [], LOCAL_STEPS) as job:
        assert job.wait() == 0, job.printed()
        assert job.summary()["samples"] == EPOCHS * SAMPLES
        job.assert_promises_held()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_source_that_lost_records_ends_the_job_with_its_name(
    workers: int, tmp_path: Path
) -> None:
    arguments = f"spec.task.arguments={{short: 4, workers: {workers}}}"
    with RunningJob(tmp_path, [arguments], STREAMING) as job:
        assert job.wait() != 0
        assert "the source 'part-4' of NumberedSources, read from number " in job.printed()
        assert " on, ended after 511 of the 512 samples that count() told" in job.printed()
        assert job.summary()["reason"] == "TaskError"


def test_a_recorded_run_over_sources_is_replayed_bit_for_bit(tmp_path: Path) -> None:
    with RunningJob(tmp_path, ["spec.record=true"], STREAMING) as job:
        assert job.wait() == 0, job.printed()
        job.assert_promises_held()
    printed = tmp_path / "replay"
    command = WarmCommand(["replay", str(job.output)], printed)
    try:
        assert command.wait(240) == 0, printed.read_text()
    finally:
        command.kill()


def test_lbfgs_over_sources_finds_what_it_finds_over_samples(tmp_path: Path) -> None:
    with RunningJob(tmp_path, ["spec.task.arguments={in_order: true}"], BATCH_JOB) as job:
        assert job.wait() == 0, job.printed()
        found = batch_jobs.flat(batch_jobs.exported(job.output))
        assert batch_jobs.distance(found, batch_jobs.serial_iterates()[-1]) < 1e-9
        job.assert_promises_held()
