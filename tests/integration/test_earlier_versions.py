"""A run that an earlier version began is gone on with by this one."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import Tensor

from builders import batch_jobs
from builders.runs import TASKS, RunningJob, set_field, set_shards
from disttrain.checkpoint import names, stores
from disttrain.checkpoint.manifest import Manifest
from disttrain.cli.checkpoints import write_model
from disttrain.job.location import Location
from disttrain.launch.run_folder import RunRecord
from golden import found as golden_runs

pytestmark = pytest.mark.landing

GOLDEN = Path(golden_runs.__file__).parent
EPOCHS = 6
"""Two more than the golden run had."""
SAMPLES = 64


@pytest.fixture(params=["v1", "v2"])
def version(request: pytest.FixtureRequest) -> Path:
    """The golden runs of an earlier version."""
    return GOLDEN / str(request.param)


def left_behind(golden: Path, tmp_path: Path) -> Path:
    """The output folder in which a golden run was made, as far as it was kept."""
    output = tmp_path / "output"
    shutil.copytree(golden, output)
    record = RunRecord(
        job_uid=checkpoints(output)[-1].job.uid,
        task_folder=TASKS,
        launcher_pid=0,
        sockets=output,
        cores=2,
        processes={},
    )
    (output / "run.json").write_bytes(record.to_json())
    return output


def checkpoints(output: Path) -> list[Manifest]:
    """The manifests that are there, the newest last."""
    store = stores.open_store(Location(output / "checkpoints"))
    return [checkpoint.manifest for checkpoint in store.list()]


def model(output: Path, checkpoint: Manifest) -> dict[str, Tensor]:
    """What `disttrain export` makes of a checkpoint."""
    out = output / f"{checkpoint.number}.safetensors"
    place = output / "checkpoints" / names.folder(checkpoint.number)
    write_model(str(place), out)
    return load_file(out)


@pytest.mark.parametrize("shards", [2, 3])
def test_a_run_of_downpour_goes_on(version: Path, tmp_path: Path, shards: int) -> None:
    output = left_behind(version / "downpour", tmp_path)
    before = checkpoints(output)[-1]
    trained = model(output, before)
    set_shards(output, shards)
    set_field(output, "stop.epochs", EPOCHS)
    set_field(output, "record", value=False)
    with RunningJob.resumed(output) as job:
        assert job.wait() == 0, job.printed()

        summary, after = job.summary(), checkpoints(output)[-1]
        assert (summary["phase"], summary["epochs"]) == ("Complete", EPOCHS)
        assert after.number > before.number
        assert after.samples == EPOCHS * SAMPLES
        assert len(after.holders) == shards
        # Every sample adds to the element of its own.
        assert model(output, after)["counts"].gt(trained["counts"]).all()
        if version.name != "v1":
            # There shards kept what incarnations had sent that were over; here it counts as
            # repeated.
            job.assert_promises_held()


@pytest.mark.parametrize("shards", [2, 3])
def test_a_run_of_a_batch_method_converges(version: Path, tmp_path: Path, shards: int) -> None:
    output = left_behind(version / "sandblaster", tmp_path)
    set_shards(output, shards)
    set_field(output, "task.arguments", {})
    set_field(output, "stop.iterations", 200)
    with RunningJob.resumed(output) as job:
        assert job.wait() == 0, job.printed()

        assert job.summary()["reason"] == "Converged"
        found = batch_jobs.flat(batch_jobs.exported(output))
        assert batch_jobs.distance(found, batch_jobs.serial_iterates()[-1]) < 1e-5
        assert len(checkpoints(output)[-1].holders) == shards
        job.assert_promises_held()
