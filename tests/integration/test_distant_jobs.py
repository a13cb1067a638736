"""What a job sends between machines far from one another, as the kernel counts it there."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from builders.distant_jobs import TEXT, DistantJob
from builders.slow_links import SlowLinks

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "low_communication.py"
REPLICAS, SHARDS = 2, 1
STEPS = 8
SAMPLES = 4 * 32 * STEPS
"""With batches of 4: 16 pushes of each replica with local steps."""


class Bytes(NamedTuple):
    """Of a whole job."""

    payload: float
    """As its replicas count it."""
    sent: int
    """As the kernel does, at all cables."""


@pytest.fixture
def links() -> Iterator[SlowLinks]:
    """Skips the test, with the reason, where namespaces are forbidden."""
    made = SlowLinks(REPLICAS + SHARDS, round_trip_seconds=0.05)
    with ExitStack() as held:
        try:
            held.enter_context(made)
        except (OSError, subprocess.CalledProcessError) as error:
            told = getattr(error, "stderr", "") or str(error)
            pytest.skip(f"machines far from one another cannot be made here: {told.strip()}")
        made.limit(100)
        yield made
    assert not set(made.names) & namespaces()


@pytest.mark.nightly
def test_local_steps_send_as_many_times_fewer_bytes_as_they_take(
    links: SlowLinks, tmp_path: Path
) -> None:
    own = sent(links, tmp_path / "own", {"localSteps": {"steps": STEPS}})
    gradients = sent(links, tmp_path / "gradients", {"downpour": {"pushEvery": 1}})

    for measured in (own, gradients):
        # Headers, heartbeats and answers are little beside them, and a page with metrics, too.
        assert 1.0 <= measured.sent / measured.payload <= 1.5
    assert gradients.sent / own.sent >= STEPS / 2


def test_an_interrupted_benchmark_leaves_no_namespace(links: SlowLinks, tmp_path: Path) -> None:
    """Its job is in a folder that goes with it, so that there is nothing for `disttrain audit`."""
    others = namespaces()
    printed = tmp_path / "printed"
    with printed.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, str(BENCHMARK), "--quick", "--only", "average"], stderr=file
        )
    try:
        wanted = f"dt{process.pid % 100_000}"
        while not any(name.startswith(wanted) for name in namespaces() - others):
            assert process.poll() is None, printed.read_text()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.wait(60)
    finally:
        process.kill()
        process.wait()

    assert not any(name.startswith(wanted) for name in namespaces())


def sent(links: SlowLinks, folder: Path, strategy: Mapping[str, Any]) -> Bytes:
    """What a job of `SAMPLES` samples sends."""
    folder.mkdir()
    fields = {
        "spec.task.arguments": {"step_seconds": 0.02, "text": str(TEXT), "width": 64},
        "spec.batchSize": 4,
        "spec.strategy": strategy,
        "spec.stop": {"samples": SAMPLES},
        "spec.evaluation": None,
    }
    before = sum(carried.sent for carried in links.carried())
    with DistantJob(folder, links, REPLICAS, fields) as job:
        job.start_all()
        job.complete()
        assert job.status()["samples"] == SAMPLES
        payload = job.payload()
        return Bytes(payload, sum(carried.sent for carried in links.carried()) - before)


def namespaces() -> set[str]:
    told = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True)
    return {line.split()[0] for line in told.stdout.splitlines()}
