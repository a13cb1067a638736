"""Jobs of a cluster from a program: `disttrain.Client().submit("job.yaml").wait()`."""

import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import JsonValue

from disttrain.cluster import (
    following,
    jobs,
    kubectl_text,
    kubernetes_api,
    logs,
    manifests,
    resources,
    submission,
)
from disttrain.cluster.errors import JobFailed, NotFound, NotInTime
from disttrain.cluster.following import Observation
from disttrain.cluster.interface import Object, Target
from disttrain.cluster.jobs import Jobs
from disttrain.cluster.logs import LogOptions
from disttrain.cluster.manifests import JobRequest
from disttrain.job import manifest_file
from disttrain.job.names import Role
from disttrain.job.spec import DistTrainJob
from disttrain.job.status import JobStatus, Phase

PathLike = str | os.PathLike[str]


class ClusterJob:
    """One job of a cluster: this very one, not a later one of the same name."""

    def __init__(self, jobs: Jobs, name: str, uid: str) -> None:
        self._jobs = jobs
        self.name = name
        self.namespace = jobs.namespace
        self.uid = uid

    def __repr__(self) -> str:
        return f"ClusterJob({self.namespace}/{self.name})"

    def status(self) -> JobStatus:
        """How it is now. Raises NotFound once it is deleted."""
        return self._observe().status

    def wait(self, timeout_s: float | None = None) -> JobStatus:
        """Return the status of the complete job.

        Raises JobFailed with the reason, also when it is deleted, and NotInTime after so many
        seconds. While the API server is away it waits on.
        """
        latest: list[Observation] = []

        def has_ended() -> bool:
            latest[:] = [self._observe()]
            return latest[0].ended is not None

        try:
            forever = float("inf")
            limit = forever if timeout_s is None else timeout_s
            jobs.wait_until(has_ended, f"job {self.name} to end", limit)
        except NotFound as error:
            raise JobFailed(str(error)) from error
        except NotInTime as error:
            raise NotInTime(f"{error}; {_present(latest)}") from error
        return _complete(latest[0], self.name)

    def logs(
        self, role: Role | str | None = None, *, follow: bool = False, tail: int | None = None
    ) -> Iterator[str]:
        """Lines of its pods' logs, each with its pod; with `follow` until the job has ended."""
        roles = () if role is None else (Role(role).value,)
        wanted = LogOptions(roles=roles, tail=tail)
        job = self._object()
        if follow:
            lines = logs.follow(self._jobs, job, wanted)
        else:
            chosen = logs.chosen(self._jobs, job, wanted)
            lines = (line for pod in chosen for line in logs.read(self._jobs, pod, wanted))
        yield from (f"[{line.pod}] {line.text}" for line in lines)

    def scale(self, replicas: int) -> None:
        """Ask for another number of replicas. Raises NotFound once it is deleted."""
        self._object()
        self._jobs.scale(self.name, replicas)

    def suspend(self) -> None:
        """Let it rest after a checkpoint. Raises NotFound once it is deleted."""
        self._object()
        self._jobs.patch(self.name, {"suspend": True})

    def resume(self) -> None:
        """Let it go on from there. Raises NotFound once it is deleted."""
        self._object()
        self._jobs.patch(self.name, {"suspend": False})

    def delete(self, *, wait: bool = True) -> None:
        """Delete it; with `wait` return when its pods are gone, too. Its volume is kept."""
        self._jobs.delete(self.name, self.uid)
        if wait:
            self._jobs.wait_until_gone(self.name, self.uid)

    def _observe(self) -> Observation:
        return following.observe(self._object(), kubectl_text.now())

    def _object(self) -> Object:
        return self._jobs.again(self.name, self.uid)


class Client:
    """The jobs of one namespace of a cluster, with the access that kubectl has.

    Raises ClusterError and Unreachable; `disttrain.cluster.errors` draws the tree.
    """

    def __init__(
        self,
        namespace: str | None = None,
        *,
        context: str | None = None,
        kubeconfig: PathLike | None = None,
    ) -> None:
        file = None if kubeconfig is None else Path(kubeconfig)
        target = Target(namespace=namespace, context=context, kubeconfig=file)
        self._wanted = namespace
        self._api = kubernetes_api.open_api(target)

    def submit(
        self,
        job: PathLike | Mapping[str, JsonValue] | DistTrainJob,
        *,
        code: PathLike | None = None,
    ) -> ClusterJob:
        """Make a job from a manifest's file, a mapping or a parsed job, with the code of a folder.

        What the manifest only warns of is a UserWarning. Raises InvalidManifest or WrongInput for
        what is wrong, AlreadyThere for a name in use.
        """
        request = _request(job)
        for each in request.warnings:
            warnings.warn(each, stacklevel=2)
        packed = submission.read_code(request, None if code is None else Path(code))
        jobs = Jobs(self._api, manifests.namespace(request, self._wanted, self._api.namespace))
        made = submission.submit(jobs, request, packed).job
        return ClusterJob(jobs, request.name, made["metadata"]["uid"])

    def get(self, name: str) -> ClusterJob:
        """The job of a name. Raises NotFound."""
        found = self._jobs.get(resources.job_name(name))
        return ClusterJob(self._jobs, found["metadata"]["name"], found["metadata"]["uid"])

    def list(self, selector: str = "") -> tuple[ClusterJob, ...]:
        """The jobs of the namespace, those that a label selector selects."""
        found = (each["metadata"] for each in self._jobs.all(selector))
        return tuple(ClusterJob(self._jobs, each["name"], each["uid"]) for each in found)

    def scale(self, name: str, replicas: int) -> None:
        self.get(name).scale(replicas)

    def suspend(self, name: str) -> None:
        self.get(name).suspend()

    def resume(self, name: str) -> None:
        self.get(name).resume()

    def delete(self, name: str, *, wait: bool = True) -> None:
        """Delete a job, all but its volume."""
        self.get(name).delete(wait=wait)

    def logs(self, name: str, role: Role | str | None = None) -> Iterator[str]:
        return self.get(name).logs(role)

    @property
    def _jobs(self) -> Jobs:
        return Jobs(self._api, self._wanted or self._api.namespace)


def _request(job: PathLike | Mapping[str, JsonValue] | DistTrainJob) -> JobRequest:
    if isinstance(job, DistTrainJob):
        return manifests.of_job(job, "the job")
    if isinstance(job, Mapping):
        return manifests.of_value(dict(job), "the job")
    file = Path(job)
    return manifests.parse(manifest_file.read_text(file), str(file))


def _complete(seen: Observation, name: str) -> JobStatus:
    if seen.ended is Phase.COMPLETE:
        return seen.status
    why = seen.why
    reason, message = ("unknown", "") if why is None else (why.reason, why.message)
    raise JobFailed(f"job {name} failed ({reason}): {message}")


def _present(latest: list[Observation]) -> str:
    if latest and latest[0].is_overlooked:
        return following.NO_OPERATOR
    phase = latest[0].status.phase if latest else None
    return f"it is {phase or 'new'}"
