"""Whole jobs whose checkpoints and journal are objects: killed, resumed, suspended, read.

The store is a folder that is used through fsspec, as a bucket would be; with the packages for it,
one job uses a real S3 server.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import Tensor

from builders import object_stores
from builders.at_night import others_at_night
from builders.pod_processes import ALL, UID, PodJob
from builders.runs import RunningJob
from disttrain.checkpoint import copies, names, objects, stores
from disttrain.checkpoint.errors import NoCheckpoint
from disttrain.cli import checkpoints
from disttrain.job.location import Location
from disttrain.launch import linux, run_folder
from disttrain.launch.process_one import STOPPED

pytestmark = pytest.mark.landing

SAMPLES = 1024
EPOCHS = 2
SLOW = "spec.task.arguments={step_seconds: 0.12}"
EVERY = "spec.checkpoint.everySeconds=0.5"
POD_SLOW = {"spec.task.arguments": {"step_seconds": 0.12}}


@pytest.fixture(name="bucket")
def _bucket() -> Iterator[str]:
    with object_stores.s3_server() as uri:
        yield uri


def place_of(job: RunningJob, uri: str) -> str:
    uid = json.loads((job.output / "run.json").read_text())["job_uid"]
    return f"{uri}/counting-{uid}"


def numbers(place: str) -> list[int]:
    found = stores.open_store(Location(Path("unused"), place)).list()
    return [one.manifest.number for one in found]


def assert_every_sample_was_applied(counts: Tensor, repeated: int) -> None:
    assert int(counts.min()) >= EPOCHS, counts
    assert 0 <= int(counts.sum()) - EPOCHS * SAMPLES <= repeated


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", others_at_night("s3", "disk"))
def test_a_job_survives_deaths_and_goes_on_from_the_store(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    uri = object_stores.location(request, kind).uri
    with RunningJob(tmp_path, [SLOW, EVERY, f"spec.checkpoint.uri={uri}"]) as job:
        job.wait_until(lambda status: status["checkpoints"] >= 1)
        job.kill("shard-1")
        job.kill("coordinator")
        made = job.status()["checkpoints"]
        job.wait_until(lambda status: status["checkpoints"] > made)
        job.kill_launcher()
        job.resume()
        assert job.wait() == 0, job.printed()

        summary, place = job.summary(), place_of(job, uri)
        assert summary["phase"] == "Complete"
        counts = load_file(job.output / "model.safetensors")["counts"]
        if not summary["updatesLost"]:
            assert_every_sample_was_applied(counts, summary["samplesRepeated"])
        job.assert_promises_held()
    assert not (job.output / "checkpoints").exists()
    assert 1 <= len(numbers(place)) <= 3
    _assert_commands_read_it(job.output, place, tmp_path)


def _assert_commands_read_it(output: Path, place: str, folder: Path) -> None:
    newest = f"{place}/{names.manifest_object(numbers(place)[-1])}"
    with pytest.raises(NoCheckpoint, match=f"has its checkpoints at {re.escape(place)}; name that"):
        checkpoints.inspected(str(output), as_json=True)
    for index, given in enumerate((place, newest)):
        out = folder / f"model-{index}.safetensors"
        checkpoints.write_model(given, out)
        assert out.read_bytes() == (output / "model.safetensors").read_bytes()
        found = json.loads(checkpoints.inspected(given, as_json=True))
        assert found["number"] == numbers(place)[-1]
        assert found["path"] == newest


def test_a_store_that_takes_nothing_stops_no_training_and_is_tried_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    uri = f"local://{root}"
    with RunningJob(tmp_path, [SLOW, EVERY, f"spec.checkpoint.uri={uri}"]) as job:
        job.wait_until(lambda status: status["checkpoints"] >= 1)
        data = root / place_of(job, uri).rpartition("/")[2] / names.DATA
        file = data.with_name("a-file")
        file.touch()
        # Nothing can be written into a file. At once: between two steps the store makes a folder.
        linux.exchange(file, data)
        job.wait_until(lambda status: status["checkpointFailures"] >= 1)
        linux.exchange(file, data)
        assert job.wait() == 0, job.printed()
        assert job.summary()["updatesLost"] == 0
        counts = load_file(job.output / "model.safetensors")["counts"]
        assert_every_sample_was_applied(counts, job.summary()["samplesRepeated"])


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("nosuch://bucket", "spec.checkpoint.uri: nosuch://bucket"),
        ("local:///proc/nothing", "spec.checkpoint.uri: local:///proc/nothing"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused_at_the_start(
    tmp_path: Path, uri: str, words: str
) -> None:
    with RunningJob(tmp_path, [f"spec.checkpoint.uri={uri}"]) as job:
        assert job.wait() == 1
        assert words in job.printed()


def own_folders(job: PodJob, *names: str) -> None:
    """As pods on nodes of their own: each next incarnation begins with an empty folder."""
    for name in names:
        incarnation = job.incarnations.get(name, 0) + 1
        folder = job.output if name == "coordinator" else job.folder / f"{name}-{incarnation}"
        job.changed[name] = {"DISTTRAIN_RUN_FOLDER": str(folder)}


def model_of(uri: str) -> dict[str, Tensor]:
    with copies.file_at(f"{uri}/counting-{UID}/{run_folder.MODEL}") as file:
        return load_file(file)


def test_pods_share_nothing_but_the_store(tmp_path: Path) -> None:
    """`disttrain audit` reads one folder with all ledgers; here each pod has its own."""
    uri = f"local://{tmp_path}/store"
    with PodJob(tmp_path, POD_SLOW | {"spec.checkpoint": _checkpoint(uri, 0.5)}) as job:
        own_folders(job, *ALL)
        job.start(*ALL)
        job.wait_until(lambda status: status["checkpoints"] >= 1)
        for name in ("shard-0", "replica-a"):
            job.kill(name)
            own_folders(job, name)
            job.start(name)
        job.kill("coordinator")
        job.start("coordinator")
        job.complete()
        assert job.outcome()["samples"] == EPOCHS * SAMPLES
        # What the shard's checkpoint did not have is lost with its pod, and nothing else.
        assert model_of(uri)["counts"].eq(EPOCHS).any()
        assert not (job.output / "model.safetensors").exists()


@pytest.mark.nightly
def test_a_suspended_job_goes_on_where_it_was(tmp_path: Path) -> None:
    uri = f"local://{tmp_path}/store"
    with PodJob(tmp_path, POD_SLOW | {"spec.checkpoint": _checkpoint(uri, 1000)}) as job:
        own_folders(job, *ALL)
        job.start(*ALL)
        job.wait_until(lambda status: status.get("samples", 0) >= SAMPLES // 4)
        job.tell_to_end("coordinator")
        assert job.wait("coordinator") == STOPPED
        job.tell_to_end(*ALL[1:])
        assert [job.wait(name) for name in ALL[1:]] == [0, 0, 0, 0]

        own_folders(job, *ALL)
        job.start(*ALL)
        job.complete()
        # Replicas left while there was no coordinator; their leave notices are in the store.
        summary = job.summary()
        assert (summary["samplesRepeated"], summary["updatesLost"]) == (0, 0), summary
        assert model_of(uri)["counts"].eq(EPOCHS).all()
        assert objects.open_objects(f"{uri}/counting-{UID}").sizes(names.FINAL_SNAPSHOTS)


def _checkpoint(uri: str, seconds: float) -> dict[str, object]:
    return {"uri": uri, "everySeconds": seconds}
