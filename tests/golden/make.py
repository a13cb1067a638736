"""Makes golden files with small real runs: `cd tests && ../.venv/bin/python -m golden.make v2`.

Once for each version of the formats, by the version itself; never again for an older one.
"""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from builders.batch_jobs import BATCH_JOB
from builders.runs import COUNTING, RunningJob
from disttrain.job import object_uri
from golden import found, make_jobs

_HERE = Path(__file__).parent
_KEPT = ("job.yaml", "summary.json", "status.json", "ledger", "checkpoints")
"""Of a run in a folder. Of one in an object store, the place and the manifest."""
_WARM_START = (
    "spec.strategy.sandblaster.warmStart={samples: 120, batchSize: 8, "
    "downpour: {optimizer: {adagrad: {learningRate: 0.05}}}}"
)
_TWO = "spec.checkpoint.keepLast=2"
_SMALL_TASK = "spec.task.arguments={samples: 64, step_seconds: 0.1}"


@dataclass(frozen=True, slots=True)
class _Run:
    """One that is small, and in which something dies."""

    manifest: str
    assignments: Sequence[str]
    killed: Sequence[str] = ("shard-1", "replica-0")
    in_objects: bool = False
    killed_at: int = 0
    """Samples after which everything is killed, so that the journal holds decisions; 0: never."""


_RUNS: Mapping[str, _Run] = {
    "downpour": _Run(
        COUNTING,
        (
            _SMALL_TASK, _TWO, "spec.stop.epochs=4", "spec.record=true",
            "spec.checkpoint.everySeconds=0.7",
            "spec.strategy.downpour.optimizer={adagrad: {learningRate: 0.1}}",
        ),
    ),
    "downpour_in_objects": _Run(
        COUNTING,
        (
            _SMALL_TASK, _TWO, "spec.stop.epochs=4", "spec.checkpoint.everySeconds=1",
            "spec.strategy.downpour.optimizer={momentum: {learningRate: 0.1, momentum: 0.5}}",
        ),
        in_objects=True,
    ),
    "sandblaster": _Run(
        BATCH_JOB,
        (
            _TWO, _WARM_START, "spec.task.arguments={portion_seconds: 0.02}",
            "spec.stop.iterations=6",
        ),
        killed=("replica-0",),
    ),
    "downpour_under_way": _Run(
        COUNTING,
        (_SMALL_TASK, "spec.stop.epochs=10", "spec.checkpoint.everySeconds=1000"),
        killed=("replica-0",),
        killed_at=200,
    ),
    "sandblaster_under_way": _Run(
        BATCH_JOB,
        (
            _WARM_START, "spec.task.arguments={portion_seconds: 0.02}",
            "spec.checkpoint.everySeconds=1000",
        ),
        killed=(),
        killed_at=2000,
    ),
}  # fmt: skip


def main() -> None:
    """Make `tests/golden/VERSION`, which must not be there."""
    version = _HERE / sys.argv[1]
    version.mkdir()
    for name, run in _RUNS.items():
        _make(version / name, run)
    make_jobs.make(version)


def _make(kept: Path, run: _Run) -> None:
    with TemporaryDirectory(prefix="golden-") as made:
        folder = Path(made)
        uri = f"local://{folder}/store"
        place = [f"spec.checkpoint.uri={uri}"] if run.in_objects else []
        with RunningJob(folder, [*run.assignments, *place], run.manifest) as job:
            _live(job, run)
        kept.mkdir()
        for part in _parts(run):
            _copy(job.output / part, kept / part)
        for journal in kept.glob("checkpoints/journal/*.jsonl"):
            _shorten(journal)
        if run.in_objects:
            _copy(_place(job, uri), kept / found.OBJECTS)
            _hide(kept / found.JOB, uri)
        content = found.of_run(kept, folder)
        (kept / found.FOUND).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def _live(job: RunningJob, run: _Run) -> None:
    job.wait_until(lambda status: status["samples"] >= 32)
    if not run.killed_at:
        job.wait_until(lambda status: status["checkpoints"] >= 1)
    for name in run.killed:
        job.kill(name)
    if not run.killed_at:
        assert job.wait() == 0, job.printed()
        return
    job.wait_until(lambda status: status["samples"] >= run.killed_at)
    coordinator = psutil.Process(job.pid("coordinator"))
    job.kill_launcher()
    coordinator.wait(60)


def _parts(run: _Run) -> Sequence[str]:
    if run.in_objects:
        return (found.JOB,)
    return (found.JOB, found.CHECKPOINTS) if run.killed_at else _KEPT


def _shorten(journal: Path) -> None:
    """Of the zeros behind its last line some thousand stay."""
    content = journal.read_bytes()
    written = len(content.rstrip(b"\0"))
    journal.write_bytes(content[: written + 4096])


def _place(job: RunningJob, uri: str) -> Path:
    uid = json.loads((job.output / "run.json").read_text())["job_uid"]
    return Path(object_uri.of_job(uri, "counting", uid).removeprefix("local://"))


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    elif source.exists():
        shutil.copy(source, target)


def _hide(file: Path, uri: str) -> None:
    """The place is not there any more, and it was of this machine."""
    file.write_text(file.read_text().replace(uri, "s3://bucket/golden"))


if __name__ == "__main__":
    main()
