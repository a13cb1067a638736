"""A second coordinator takes a job over while the first one still runs, as after a lost node."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import object_stores
from builders.pod_processes import ALL, PodJob
from disttrain.job.pod_layout import Variable
from disttrain.launch.exit_code import ExitCode
from disttrain.launcher import run

SLOW = {
    "spec.task.arguments": {"step_seconds": 0.2},
    "spec.checkpoint.everySeconds": 1000,
    # A coordinator that nobody talks to declares all dead after it.
    "spec.coordinator.memberTimeoutSeconds": 80,
}


@pytest.fixture(name="bucket")
def _bucket() -> Iterator[str]:
    with object_stores.s3_server() as uri:
        yield uri


@pytest.mark.parametrize(
    "kind",
    [
        "folder",
        pytest.param("disk", marks=pytest.mark.nightly),
        # Its server lists an object before it has the content, which S3 does not.
        pytest.param("s3", marks=pytest.mark.nightly),
    ],
)
def test_the_older_one_ends_by_itself_and_the_job_goes_on_with_the_newer(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    uri = object_stores.location(request, kind).uri
    journal = {"spec.checkpoint.uri": uri} if uri else {}
    with PodJob(tmp_path, SLOW | journal) as job, run.reserve_port() as port:
        job.start(*ALL)
        job.wait_until(lambda status: status["samples"] > 0)
        # On another node, with the same volume or store; nobody is connected to it yet.
        elsewhere = {str(Variable.LISTEN_ADDRESS): f"tcp://127.0.0.1:{port}"}
        job.changed["coordinator-2"] = elsewhere
        job.start("coordinator-2")

        assert job.wait("coordinator") == ExitCode.SUPERSEDED
        assert "ends: the job has a newer coordinator" in job.log("coordinator")
        assert not job.termination_log("coordinator").exists()
        # Whoever starts it again, on its node, does not take the job back.
        job.start("coordinator")
        assert job.wait("coordinator") == ExitCode.SUPERSEDED
        assert job.is_running("coordinator-2")

        # The name leads to the newer one now.
        job.kill("coordinator-2")
        job.changed["coordinator-2"] = {}
        job.start("coordinator-2")
        assert job.wait("coordinator-2") == 0
        summary = job.summary()
        assert summary["phase"] == "Complete"
        assert summary["restarts"]["coordinator"] == 2
        job.assert_promises_held()
