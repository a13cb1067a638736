"""The commands around a run: watching it, stopping it, going on, and using what it made."""

import json
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from safetensors.torch import load_file

from builders.commands import disttrain
from builders.runs import RunningJob, set_field
from builders.scraping import addresses, scraped, total
from disttrain.launch.run_folder import RunFolder
from disttrain.transport.header import job_digest
from disttrain.transport.segments import name_prefix

SAMPLES = 1024
EPOCHS = 2
SLOW = "spec.task.arguments={step_seconds: 0.02}"
SLOWER = "spec.task.arguments={step_seconds: 0.1}"
ENDLESS = (SLOW, "spec.stop.epochs=100000")
PROCESSES = ("coordinator", "shard-0", "shard-1", "replica-0", "replica-1")

SERVED = {
    "coordinator": (
        "disttrain_job_samples",
        "disttrain_samples_per_second",
        "disttrain_portions_done_total",
        "disttrain_portions_requeued_total",
        "disttrain_restarts_total",
        "disttrain_job_checkpoint_seconds",
    ),
    "shard": (
        "disttrain_shard_version",
        "disttrain_updates_applied_total",
        "disttrain_updates_refused_total",
        "disttrain_updates_at_risk",
        "disttrain_gradient_staleness_updates_bucket",
        "disttrain_checkpoint_seconds",
        "disttrain_checkpoint_blocking_seconds",
        "disttrain_push_bytes_total",
        "disttrain_fetch_bytes_total",
    ),
    "replica": (
        "disttrain_samples_total",
        "disttrain_steps_total",
        "disttrain_loss",
        "disttrain_push_seconds_bucket",
        "disttrain_fetch_seconds_bucket",
        "disttrain_push_bytes_total",
        "disttrain_fetch_bytes_total",
    ),
}


def begun(status: dict[str, Any]) -> bool:
    return bool(status.get("samples", 0) > 0 and len(status["members"]) == 4)


def half_way(status: dict[str, Any]) -> bool:
    return bool(status.get("samples", 0) >= SAMPLES // 2)


def test_a_running_job_tells_its_state_and_every_process_its_metrics(tmp_path: Path) -> None:
    with RunningJob(tmp_path, ENDLESS) as job:
        job.wait_until(half_way)
        code, said, _ = disttrain("status", job.output, "--json")
        status = json.loads(said)
        assert (code, status["phase"], status["running"]) == (0, "Running", True)

        code, said, _ = disttrain("status", job.output)
        assert code == 0
        assert all(name in said for name in PROCESSES)
        (sentence,) = [line for line in said.splitlines() if "What limits the speed: " in line]
        assert sentence.endswith((".", "shards.")), sentence

        served = addresses(status)
        assert served.keys() == set(PROCESSES)
        texts = {name: scraped(address) for name, address in served.items()}
        missing = [
            (name, series)
            for name, text in texts.items()
            for series in SERVED[name.partition("-")[0]]
            if series not in text
        ]
        assert missing == []
        assert total(texts["coordinator"], "disttrain_job_samples") >= SAMPLES / 2
        assert total(texts["shard-0"], "disttrain_shard_version") >= SAMPLES / 16
        assert total(texts["replica-0"], "disttrain_samples_total") > 0
        assert all(address.startswith("127.0.0.1:") for address in served.values())

        _, said, _ = disttrain("audit", job.output)
        assert said.startswith("the run is still going on: "), said
        job.interrupt()
        assert job.wait() == 130
        job.assert_promises_held()


def test_a_resumed_run_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [SLOWER, "spec.checkpoint.everySeconds=30"]) as job:
        job.wait_until(half_way)
        job.interrupt()
        assert job.wait() == 130
        assert "disttrain resume" in job.printed()
        stopped = job.summary()
        assert stopped["phase"] == "Stopped"
        assert 0 < stopped["samples"] < EPOCHS * SAMPLES
        assert not (job.output / "model.safetensors").exists()
        assert_resumes_by_no_other_seed(job.output)

        set_field(job.output, "task.arguments", {"step_seconds": 0.02})
        job.resume()
        resumed = job.wait_until(begun)
        assert resumed["samples"] >= stopped["samples"]
        assert job.wait() == 0
        summary = job.summary()
        assert (summary["phase"], summary["epochs"]) == ("Complete", EPOCHS)
        assert (summary["samples"], summary["samplesRepeated"]) == (EPOCHS * SAMPLES, 0)
        assert summary["updatesLost"] == 0
        assert load_file(job.output / "model.safetensors")["counts"].eq(EPOCHS).all()
        job.assert_promises_held()


def assert_resumes_by_no_other_seed(output: Path) -> None:
    """The portions that are done were cut by the first one."""
    first = yaml.safe_load((output / "job.yaml").read_text())["spec"]["seed"]
    set_field(output, "seed", first + 1)
    code, _, said = disttrain("resume", output)
    assert (code, "Traceback" in said) == (2, False), said
    assert f"Set {first}, or begin a new run" in said
    set_field(output, "seed", first)


def test_a_run_that_ended_before_its_first_checkpoint_is_not_resumed(tmp_path: Path) -> None:
    with RunningJob(tmp_path, ["spec.task.entrypoint=slow_import:Counting"]) as job:
        job.wait_until(lambda status: status["phase"] == "Waiting")
        job.interrupt()
        assert job.wait() == 130
        assert "no checkpoint to go on from" in job.printed()

        before = (job.output / "summary.json").read_text()
        code, _, said = disttrain("resume", job.output)
        assert (code, "Traceback" in said) == (2, False)
        assert "ended before its first checkpoint" in said
        assert "into another folder, or delete this one first" in said
        assert (job.output / "summary.json").read_text() == before
        job.assert_promises_held()


def test_a_finished_run_can_be_inspected_measured_and_exported(tmp_path: Path) -> None:
    with RunningJob(tmp_path) as job:
        assert job.wait() == 0

        code, said, _ = disttrain("status", job.output)
        assert code == 0
        assert "complete" in said.lower()
        code, said, _ = disttrain("inspect", job.output)
        assert code == 0
        assert all(name in said for name in ("counts", "first_updates", "all 3 verified"))
        code, said, _ = disttrain("evaluate", job.output)
        assert code == 0
        assert f"counted {EPOCHS}" in said

        out = tmp_path / "exported.safetensors"
        code, said, _ = disttrain("export", job.output, out)
        assert code == 0
        assert out.read_bytes() == (job.output / "model.safetensors").read_bytes()


def test_a_complete_run_goes_on_only_for_more(tmp_path: Path) -> None:
    with RunningJob(tmp_path) as job:
        assert job.wait() == 0
        before = {path: path.read_bytes() for path in job.output.rglob("*") if path.is_file()}
        code, said, _ = disttrain("resume", job.output)
        assert (code, f"{EPOCHS} epochs" in said, "staleness p50" in said) == (0, True, True), said
        after = {path: path.read_bytes() for path in job.output.rglob("*") if path.is_file()}
        assert after == before

        set_field(job.output, "stop.epochs", EPOCHS + 1)
        job.resume()
        assert job.wait() == 0
        assert job.summary()["epochs"] == EPOCHS + 1
        assert load_file(job.output / "model.safetensors")["counts"].eq(EPOCHS + 1).all()
        job.assert_promises_held()


def finish(job: RunningJob) -> None:
    assert job.wait() == 0


def fail(job: RunningJob) -> None:
    assert job.wait() == 1


def wait_half_way(job: RunningJob) -> None:
    job.wait_until(half_way)
    assert len(still_there(job)) > len(PROCESSES), "the launcher and the fork server are there too"
    assert len(users_of(segments_of(job))) >= 4, "shared memory is looked for where it is"


def interrupt(job: RunningJob) -> None:
    wait_half_way(job)
    job.interrupt()
    assert job.wait() == 130


def kill_launcher(job: RunningJob) -> None:
    wait_half_way(job)
    job.kill_launcher()


def hang_and_kill_launcher(job: RunningJob) -> None:
    wait_half_way(job)
    for process in still_there(job):
        if process.pid != job.launcher:
            process.send_signal(signal.SIGSTOP)
    job.kill_launcher()


DIVERGES = (
    "spec.task.arguments={nan_from_sample: 0}",
    "spec.failurePolicy.maxNonFiniteGradients=1",
)


@pytest.mark.parametrize(
    ("end", "assignments"),
    [
        (finish, ()),
        (fail, DIVERGES),
        (interrupt, ENDLESS),
        (kill_launcher, ENDLESS),
        (hang_and_kill_launcher, ENDLESS),
    ],
)
def test_nothing_is_left_behind(
    tmp_path: Path, end: Callable[[RunningJob], None], assignments: tuple[str, ...]
) -> None:
    with RunningJob(tmp_path, assignments) as job:
        end(job)
        assert psutil.wait_procs(still_there(job), timeout=60)[1] == []
        job.assert_promises_held()
    assert users_of(segments_of(job)) == set()


def segments_of(job: RunningJob) -> str:
    """How the names of all shared memory of a job begin."""
    record = RunFolder(job.output).read_record()
    return f"memfd:{name_prefix(job_digest(record.job_uid))}"


def users_of(segments: str) -> set[str]:
    """Processes that hold or map shared memory whose name begins so."""
    users = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            held = [str(file.readlink()) for file in (process / "fd").iterdir()]
            if segments in (process / "maps").read_text() or any(segments in name for name in held):
                users.add(process.name)
    return users


def still_there(job: RunningJob) -> list[psutil.Process]:
    """The processes that work for the job; each has the output folder among its open files."""
    return [process for process in psutil.process_iter() if works_in(process, job.output)]


def works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE or process.pid == psutil.Process().pid:
            return False
        opened = [each.path for each in process.open_files()]
        return any(Path(path).is_relative_to(folder) for path in [*opened, *process.cmdline()])
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
