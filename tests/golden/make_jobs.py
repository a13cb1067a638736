"""Makes golden job objects of golden runs.

The operator decides on the cluster in memory; the coordinator's words are those for the state that
the run's journal ends with.
"""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from builders.fake_cluster import FakeClient, World
from builders.operator_in_memory import OperatorInMemory
from disttrain.coordinator import strategies
from disttrain.coordinator.journal import journals
from disttrain.coordinator.status import sections
from disttrain.coordinator.status.watch import Watch
from disttrain.job import manifest_file
from disttrain.job.spec import API_VERSION, KIND, DistTrainJob
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.records import JobKey
from golden import found

_RUNS = ("downpour", "sandblaster")
_NAMESPACE = "golden"
_ENDED = {"phase": "Complete", "reason": "Epochs", "message": "4 epochs"}

Object = dict[str, Any]


def make(version: Path) -> None:
    """Make the folder `jobs` beside the runs of a version; it must not be there."""
    kept = version / "jobs"
    kept.mkdir()
    for name in _RUNS:
        job = manifest_file.load_job(version / name / found.JOB)
        cluster = _Cluster(name, job, _said(version / name, job))
        _keep(kept / f"{name}-running.json", cluster.running())
        _keep(kept / f"{name}-complete.json", cluster.complete())


class _Cluster:
    """One job and its operator."""

    def __init__(self, name: str, job: DistTrainJob, said: Object) -> None:
        """`said`: what the coordinator says all the time."""
        self._world = World()
        self._client = FakeClient(self._world)
        self._operator = OperatorInMemory(self._world, self._client)
        self._key = JobKey(_NAMESPACE, name)
        self._said = said
        header = {"apiVersion": API_VERSION, "kind": KIND}
        metadata = {"name": name, "namespace": _NAMESPACE}
        spec = job.spec.model_dump(mode="json", by_alias=True)
        self._world.create(Kind.DistTrainJob, {**header, "metadata": metadata, "spec": spec})

    def running(self) -> Object:
        """The object once everything is ready."""
        for _ in range(2):
            self._look()
        return self._object()

    def complete(self) -> Object:
        """The object once the coordinator has ended well and everything else was stopped."""
        self._world.finish_coordinators(json.dumps(_ENDED))
        for _ in range(3):
            self._look()
        return self._object()

    def _look(self) -> None:
        self._world.now += timedelta(seconds=2)
        self._operator.hear()
        asyncio.run(self._operator.reconciler.look(self._key, 0))
        self._world.run_controllers()

    def _object(self) -> Object:
        """With the words of both: on the cluster in memory one's replace the other's."""
        body = self._world.find((Kind.DistTrainJob, *self._key))
        return {**body, "status": {**body["status"], **self._said}}


def _said(run: Path, job: DistTrainJob) -> Object:
    with TemporaryDirectory() as copies:
        replayed = journals.replay(found.location_of(run, Path(copies)))
    assert replayed is not None
    stages = strategies.stages(job.spec)
    ended = replayed.state.ended
    assert ended is not None
    return sections.of_object(replayed.state, stages, Watch(), ended)


def _keep(file: Path, body: Object) -> None:
    file.write_text(json.dumps(body, indent=1, sort_keys=True) + "\n")
