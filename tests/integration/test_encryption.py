"""A job over TCP that encrypts nothing, as on a network that does so by itself."""

import json
from pathlib import Path

from builders.runs import RunningJob

PLAIN = ["spec.transport=tcp", "spec.transport.encryption=none", "spec.parameterServer.shards=2"]


def test_a_job_without_encryption_trains_makes_no_keys_and_warns(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [*PLAIN, "spec.replicas.count=2", "spec.stop.steps=40"]) as job:
        assert job.wait() == 0, job.printed()
        files = sorted((job.output / "launch").glob("*.json"))
        told = [json.loads(file.read_text()) for file in files]
        said = job.printed()

    assert [each["credentials"] for each in told] == [None] * 6
    assert {each["coordinator_address"].partition(":")[0] for each in told} == {"tcp"}
    assert {each["job"]["spec"]["transport"]["encryption"] for each in told} == {"none"}
    assert "PRIVATE KEY" not in "".join(file.read_text() for file in files)
    (warning,) = [line for line in said.splitlines() if "spec.transport" in line]
    assert "warning: spec.transport.encryption: is none, so whoever reaches a TCP port" in warning
