"""Shard 0 is killed between any two steps that count what it has lost; the count stays exact."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

from builders.runs import TASKS, RunningJob
from disttrain.checkpoint import stores
from disttrain.launch.process import SERVERS_VARIABLE
from tasks.counting import STEPS_BEFORE_THE_GATE
from tasks.doomed_shard import DEATHS, PUSHES

pytestmark = pytest.mark.landing

EPOCHS = 2
SAMPLES = 1024


def pushes_in_the_first_checkpoint(job: RunningJob) -> int:
    (first,) = [
        one
        for one in stores.in_folder(job.output / "checkpoints").list()
        if one.manifest.number == 1
    ]
    return first.manifest.holders[0].version


def test_every_lost_update_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVERS_VARIABLE, "shard=doomed_shard")
    monkeypatch.setenv("PYTHONPATH", str(TASKS), prepend=":")
    gate = tmp_path / "gate"
    gated = f"spec.task.arguments={{step_seconds: 0.02, gate: {gate}}}"
    with RunningJob(tmp_path, ["spec.checkpoint.everySeconds=60", gated]) as job:
        # No other incarnation of a shard begins empty: at the gate its first death is still to
        # come.
        assert 2 * STEPS_BEFORE_THE_GATE < PUSHES
        job.wait_until(lambda status: status["checkpoints"] >= 1)
        gate.touch()
        assert job.wait() == 0

        summary = job.summary()
        trained = load_file(job.output / "model.safetensors")
        assert (job.output / "died").read_text().splitlines() == list(DEATHS)
        # The incarnation that died before it joined is known to the launcher only.
        assert summary["restarts"] == {"coordinator": 0, "shard": len(DEATHS) - 1, "replica": 0}
        # The last push of each replica came again, if its answer was not sent; the very last one's
        # was not even made.
        stored = PUSHES - pushes_in_the_first_checkpoint(job)
        assert stored - 2 <= summary["updatesLost"] <= stored - 1
        pushes = EPOCHS * SAMPLES / 8
        assert trained["first_updates"].eq(pushes - summary["updatesLost"]).all()
        assert trained["last_updates"].eq(pushes).all()
        job.assert_promises_held()
