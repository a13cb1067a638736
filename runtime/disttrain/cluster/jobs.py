"""Jobs and what belongs to them: the few things that can be asked and done, each one request."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from disttrain.cluster import errors, resources
from disttrain.cluster.interface import Api, Object, Request
from disttrain.cluster.resources import CLAIMS, JOBS, PODS, Resource
from disttrain.job import cluster_labels, cluster_names, object_uri, pod_layout

POLL_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 600.0
"""For pods to end: each has two minutes to save its work, and nodes may be slow."""

FIELD_MANAGER: Final = "disttrain-cli"
"""Owner of the fields that people write with these commands."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs of one namespace."""

    api: Api
    namespace: str

    def get(self, name: str) -> Object:
        """The job. Raises NotFound, which names the nearest one."""
        return self._on(name, resources.get(JOBS, self.namespace, name))

    def again(self, name: str, uid: str) -> Object:
        """This very job. Raises NotFound, also when a later one has its name."""
        found = self.get(name)
        if found["metadata"]["uid"] != uid:
            raise errors.NotFound(f"job {name} was deleted, and another one has its name")
        return found

    def names(self, selector: str = "") -> list[str]:
        return [each["metadata"]["name"] for each in self.all(selector)]

    def all(self, selector: str = "") -> list[Object]:
        request = resources.listing(JOBS, self.namespace, labelSelector=selector)
        return list(items(self.api, request))

    def choose(
        self, names: Sequence[str], selector: str = "", *, everything: bool = False
    ) -> list[str]:
        """Names of the jobs that are meant, once each. WrongInput unless it is said one way."""
        ways = [bool(names), bool(selector), everything]
        if sum(ways) != 1:
            raise errors.WrongInput(
                "say which jobs: names, or --selector LABELS, or --all; one of them"
            )
        if names:
            return list(dict.fromkeys(map(resources.job_name, names)))
        return self.names(selector)

    def create(self, manifest: Object, *, dry_run: bool = False) -> Object:
        """Make a job; the API server's object. Raises AlreadyThere, WrongInput."""
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        return self.api.call(resources.create(JOBS, self.namespace, manifest, query))

    def patch(self, name: str, spec: Object, part: str = "") -> Object:
        """Change fields of the spec; the job as it is then. Raises NotFound, WrongInput."""
        return self._on(name, resources.patch(JOBS, self.namespace, name, {"spec": spec}, part))

    def scale(self, name: str, replicas: int) -> None:
        """Ask for another number of replicas. Raises NotFound, WrongInput."""
        self.patch(name, {"replicas": replicas}, "scale")

    def delete(self, name: str, uid: str) -> Object:
        """Delete this very job; what belongs to it goes soon after. Raises NotFound, Conflict."""
        return self._on(name, resources.delete(JOBS, self.namespace, name, uid))

    def wait_until_gone(self, name: str, uid: str) -> None:
        """Return when neither the job nor a pod of it is there. Raises NotInTime."""
        job = {"metadata": {"name": name, "uid": uid}}
        request = resources.get(JOBS, self.namespace, name)

        def is_gone() -> bool:
            with suppress(errors.NotFound):
                if self.api.call(request)["metadata"]["uid"] == uid:
                    return False
            return not self.pods(job)

        wait_until(is_gone, f"job {name} and its pods to be gone", PATIENCE_SECONDS)

    def pods(self, job: Object) -> list[Object]:
        """The pods of a job, in the order of their names."""
        return sorted(self.of_pods(PODS, job), key=lambda pod: str(pod["metadata"]["name"]))

    def of_pods(self, resource: Resource, job: Object) -> Iterator[Object]:
        selector = selector_of_pods(job)
        return items(self.api, resources.listing(resource, self.namespace, labelSelector=selector))

    def visible_pods(self, job: Object) -> list[Object]:
        """The same, but none for somebody who may look at jobs and not at pods."""
        try:
            return self.pods(job)
        except errors.Forbidden:
            return []

    def kept_claim(self, name: str) -> str | None:
        """Name of the claim that outlives the job, if one was made for it and can be seen."""
        claim = cluster_names.checkpoints_claim(name)
        try:
            found = self.api.call(resources.get(CLAIMS, self.namespace, claim))
        except errors.ClusterError:
            return None
        # One with an owner goes with the job.
        return None if found["metadata"].get("ownerReferences") else claim

    def _on(self, name: str, request: Request) -> Object:
        try:
            return self.api.call(request)
        except errors.NotFound as error:
            others: list[str] = []
            # Somebody may be allowed to look at jobs one by one alone.
            with suppress(errors.Forbidden):
                others = self.names()
            raise resources.no_job(name, self.namespace, others) from error


def selector_of_pods(job: Object) -> str:
    metadata = job["metadata"]
    return cluster_labels.selector_text(cluster_labels.all_pods(metadata["name"], metadata["uid"]))


def items(api: Api, request: Request) -> Iterator[Object]:
    for page in pages(api, request):
        yield from page.get("items") or ()


def pages(api: Api, request: Request) -> Iterator[Object]:
    """The answers to a list: the API server gives long ones in parts."""
    following = request
    while True:
        answer = api.call(following)
        yield answer
        token = (answer.get("metadata") or {}).get("continue")
        if not token:
            return
        following = replace(request, query={**request.query, "continue": token})


def files_of(job: Object) -> str:
    """The folder of a job and the claim whose volume it is on, or its place in an object store."""
    metadata = job["metadata"]
    checkpoint = job["spec"].get("checkpoint") or {}
    volume, uri = checkpoint.get("volume") or {}, checkpoint.get("uri") or ""
    if object_uri.is_one(uri):
        return object_uri.of_job(uri, metadata["name"], metadata["uid"])
    claim = volume.get("claimName") or cluster_names.checkpoints_claim(metadata["name"])
    folder = pod_layout.run_folder(metadata["name"], metadata["uid"]).name
    return f"folder {folder} of persistentvolumeclaim/{claim}"


def wait_until(holds: Callable[[], bool], what: str, seconds: float) -> None:
    """Return when it holds; an API server that is away for a while is borne. Raises NotInTime."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if holds():
                return
        except errors.Unreachable:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise errors.NotInTime(f"waited {seconds:g} s for {what}")
        time.sleep(POLL_SECONDS)
