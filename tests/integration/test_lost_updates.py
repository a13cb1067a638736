"""Shard 0 is killed between any two steps that count what it has lost; the count stays exact."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

from builders.runs import TASKS, RunningJob
from disttrain.launch.process import SERVERS_VARIABLE
from tasks.doomed_shard import DEATHS, PUSHES

EPOCHS = 2
SAMPLES = 1024


def test_every_lost_update_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVERS_VARIABLE, "shard=doomed_shard")
    monkeypatch.setenv("PYTHONPATH", str(TASKS), prepend=":")
    with RunningJob(tmp_path, ["spec.checkpoint.everySeconds=60"]) as job:
        assert job.wait() == 0

        summary = job.summary()
        trained = load_file(job.output / "model.safetensors")
        assert (job.output / "died").read_text().splitlines() == list(DEATHS)
        # The life that died before it joined is known to the launcher only.
        assert summary["restarts"] == {"coordinator": 0, "shard": len(DEATHS) - 1, "replica": 0}
        # The first checkpoint holds nothing. The last push of each replica came again, if its
        # answer was not sent; the very last one's was not even made.
        assert PUSHES - 2 <= summary["updatesLost"] <= PUSHES - 1
        pushes = EPOCHS * SAMPLES / 8
        assert trained["first_updates"].eq(pushes - summary["updatesLost"]).all()
        assert trained["last_updates"].eq(pushes).all()
        job.assert_promises_held()
