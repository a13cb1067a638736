"""A Kubernetes in memory, for simulations: objects, their versions, controllers that make pods.

It knows of what the operator relies on, no more: names are taken once, versions grow, owners take
their children with them. No mock of the API server decides whether something works; the
end-to-end tests do.
"""

import copy
import itertools
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from builders import api_rules
from builders.api_rules import Owned
from disttrain_operator.cluster.answers import Event, EventType
from disttrain_operator.cluster.client import Client, Page, Query
from disttrain_operator.cluster.credentials import Credentials
from disttrain_operator.errors import Conflict, NotFound, Unavailable
from disttrain_operator.kinds import WORKLOADS, Kind
from disttrain_operator.observed.watched import KINDS

Object = dict[str, Any]
Key = tuple[Kind, str, str]

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_HAVE_GENERATION = {Kind.DistTrainJob, *WORKLOADS}
_HAVE_STATUS = {*_HAVE_GENERATION, Kind.Pod}
_COMPONENT = "app.kubernetes.io/component"
_POD_INDEX = "apps.kubernetes.io/pod-index"


@dataclass(slots=True)
class World:
    """The objects, and every event since the beginning."""

    now: datetime = BEGIN
    objects: dict[Key, Object] = field(default_factory=dict)
    events: list[tuple[Kind, str, Object]] = field(default_factory=list)
    created: list[Key] = field(default_factory=list)
    owned: dict[str, Owned] = field(default_factory=dict)
    """Who wrote what of an object, by its uid."""
    num_requests: int = 0
    down: bool = False
    failed: dict[str, list[datetime]] = field(default_factory=dict)
    """When pods of an owner, by its uid, were deleted before their end."""
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def version(self) -> str:
        """Of a list that is read now."""
        return str(next(self._numbers))

    def put(self, kind: Kind, body: Object, event: str) -> Object:
        """Store an object and tell of it."""
        body = copy.deepcopy(body)
        metadata = body["metadata"]
        metadata["resourceVersion"] = str(next(self._numbers))
        self.objects[kind, metadata["namespace"], metadata["name"]] = body
        self.events.append((kind, event, copy.deepcopy(body)))
        return copy.deepcopy(body)

    def create(self, kind: Kind, body: Object) -> Object:
        """Make an object. Raises Conflict if its name is taken."""
        metadata = dict(body["metadata"])
        key = (kind, metadata["namespace"], metadata["name"])
        if key in self.objects:
            message = f"{key} is there"
            raise Conflict(message)
        metadata["uid"] = f"uid-{next(self._numbers)}-{kind.name.lower()}"
        metadata["creationTimestamp"] = self.now.isoformat()
        if kind in _HAVE_GENERATION:
            metadata["generation"] = 1
        self.created.append(key)
        return self.put(kind, {**body, "metadata": metadata}, "ADDED")

    def change(self, key: Key, patch: Object) -> Object:
        """Merge a patch into an object; another spec is another generation."""
        found = self.find(key)
        api_rules.check_same(key, found, patch)
        changed = api_rules.merged(found, patch)
        api_rules.check_change(key[0], found, changed)
        return self.replace(key, changed)

    def replace(self, key: Key, changed: Object) -> Object:
        """Keep what became of an object; another spec is another generation."""
        found = self.find(key)
        if changed.get("spec") != found.get("spec") and key[0] in _HAVE_GENERATION:
            changed["metadata"]["generation"] += 1
        return found if changed == found else self.put(key[0], changed, "MODIFIED")

    def find(self, key: Key) -> Object:
        """An object. Raises NotFound."""
        if key not in self.objects:
            message = f"{key} is not there"
            raise NotFound(message)
        return copy.deepcopy(self.objects[key])

    def delete(self, key: Key) -> None:
        found = self.objects.pop(key, None)
        if found is None:
            return
        found["metadata"]["resourceVersion"] = str(next(self._numbers))
        self.events.append((key[0], "DELETED", found))
        if key[0] is Kind.Pod and found.get("status", {}).get("phase") != "Succeeded":
            for owner in found["metadata"].get("ownerReferences", []):
                self.failed.setdefault(owner["uid"], []).append(self.now)
        for other, body in list(self.objects.items()):
            if _is_owned(body, found):
                self.delete(other)

    def run_controllers(self) -> None:
        """Bring pods and the workloads' statuses to what their specs say."""
        for key in [key for key in self.objects if key[0] in WORKLOADS]:
            self._run_controller(key)

    def finish_coordinators(self, words: str) -> None:
        """End every coordinator that runs."""
        for (kind, namespace, name), pod in list(self.objects.items()):
            if kind is Kind.Pod and pod["metadata"]["labels"][_COMPONENT] == "coordinator":
                ended = {"exitCode": 0, "message": words, "finishedAt": self.now.isoformat()}
                status = _pod_status("Succeeded", {"terminated": ended})
                self.change((kind, namespace, name), {"status": status})

    def _run_controller(self, key: Key) -> None:
        body = self.objects[key]
        pods = [other for other, pod in self.objects.items() if _is_owned(pod, body)]
        over = [pod for pod in pods if self.objects[pod]["status"]["phase"] == "Succeeded"]
        wanted = _wanted(key[0], body["spec"])
        if key[0] is Kind.Job and over:
            done = [{"type": "Complete", "status": "True"}]
            self.change(key, {"status": {"active": 0, "ready": 0, "conditions": done}})
            return
        if key[0] is Kind.StatefulSet:
            self._run_set(key, body, set(pods))
            return
        for pod in pods[wanted:]:
            self.delete(pod)
        if key[0] is Kind.Job:
            self._run_job(key, body, pods[:wanted])
            return
        for _ in range(wanted - len(pods)):
            self._make_pod(key, body, str(next(self._numbers)))
        self.change(key, {"status": {"replicas": wanted, "readyReplicas": wanted}})

    def _run_set(self, key: Key, body: Object, pods: set[Key]) -> None:
        """Bring the pods of a StatefulSet, which are told apart, to the number that it wants."""
        wanted = _wanted(key[0], body["spec"])
        names = [(Kind.Pod, key[1], f"{key[2]}-{index}") for index in range(wanted)]
        for pod in pods.difference(names):
            self.delete(pod)
        for index, pod in enumerate(names):
            # Those of a set of before may have the name for a while.
            if pod not in self.objects:
                self._make_pod(key, body, str(index), {_POD_INDEX: str(index)})
        there = [pod for pod in names if pod in self.objects]
        self.change(key, {"status": {"replicas": len(there), "readyReplicas": len(there)}})

    def _run_job(self, key: Key, body: Object, pods: list[Key]) -> None:
        """Make the pod that is wanted, after a failed one as late as Kubernetes does."""
        failed = self.failed.get(body["metadata"]["uid"], [])
        wanted = _wanted(key[0], body["spec"])
        patience = min(timedelta(seconds=5 * (1 << len(failed))), timedelta(minutes=10))
        held = bool(failed) and self.now < failed[-1] + patience
        if wanted > len(pods) and not held:
            self._make_pod(key, body, str(next(self._numbers)))
            pods = [key]
        started = body.get("status", {}).get("startTime") or self.now.isoformat()
        status = {"active": len(pods), "ready": len(pods), "failed": len(failed)}
        self.change(key, {"status": {**status, "startTime": started if wanted else None}})

    def _make_pod(
        self, key: Key, owner: Object, ending: str, labels: dict[str, str] | None = None
    ) -> None:
        template = owner["spec"]["template"]
        metadata = {
            "name": f"{key[2]}-{ending}",
            "namespace": key[1],
            "labels": template["metadata"]["labels"] | (labels or {}),
            "ownerReferences": [{"uid": owner["metadata"]["uid"], "controller": True}],
        }
        status = _pod_status("Running", {"running": {}})
        self.create(Kind.Pod, {"metadata": metadata, "spec": {}, "status": status})


class FakeClient(Client):
    """The operator's client, on a world in memory."""

    def __init__(self, world: World) -> None:
        super().__init__(Credentials("https://nowhere", None), random.Random(0))
        self._world = world

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        self._count()
        return self._world.find((kind, namespace, name))

    async def review_token(self, token: str, audience: str) -> Object:
        """A token is `NAMESPACE/POD/UID` here, good as long as the pod is there."""
        self._count()
        namespace, name, uid = token.split("/")
        found = self._world.objects.get((Kind.Pod, namespace, name), {"metadata": {}})
        if found["metadata"].get("uid") != uid:
            return {"status": {"authenticated": False, "error": "the pod is gone"}}
        claims = {"pod-name": [name], "pod-uid": [uid]}
        extra = {f"authentication.kubernetes.io/{key}": value for key, value in claims.items()}
        user = {"username": f"system:serviceaccount:{namespace}:default", "extra": extra}
        return {"status": {"authenticated": True, "audiences": [audience], "user": user}}

    async def create(self, kind: Kind, body: Object, *, dry_run: bool = False) -> Object:
        self._count()
        kept: Object = api_rules.without_nulls(body)
        api_rules.check_new(kind, kept)
        if dry_run:
            return body
        made = self._world.create(kind, kept)
        api_rules.note_update({}, kept, self._owned(made))
        return made

    async def apply(self, kind: Kind, body: Object, subresource: str = "") -> Object:
        self._count()
        metadata = body["metadata"]
        key = (kind, metadata["namespace"], metadata["name"])
        if key not in self._world.objects and not subresource:
            return self._make(kind, body)
        found = self._world.find(key)
        api_rules.check_same(key, found, body)
        if subresource:
            whole = {**self._world.objects[key], "status": body["status"]}
            return self._world.put(kind, whole, "MODIFIED")
        wanted = api_rules.without_nulls(_without_status(body))
        changed = api_rules.applied(found, wanted, self._owned(found))
        api_rules.check_change(kind, found, changed)
        return self._world.replace(key, changed)

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        self._count()
        name, _, subresource = name.partition("/")
        key = (kind, namespace, name)
        found = self._world.find(key)
        patch = patch if subresource or kind not in _HAVE_STATUS else _without_status(patch)
        changed = self._world.change(key, patch)
        api_rules.note_update(found, changed, self._owned(found))
        return changed

    def _make(self, kind: Kind, body: Object) -> Object:
        """Make an object by an apply, unless it is to be a certain one."""
        if "uid" in body["metadata"]:
            message = "an object with this uid is not there"
            raise Conflict(message)
        wanted = api_rules.without_nulls(body)
        api_rules.check_new(kind, wanted)
        made = self._world.create(kind, wanted)
        self._owned(made).applied = {path for path, _ in api_rules.leaves(wanted)}
        return made

    def _owned(self, body: Object) -> Owned:
        return self._world.owned.setdefault(body["metadata"]["uid"], Owned())

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        uid: str,
        *,
        at_once: bool = False,
        version: int | None = None,
    ) -> None:
        # At once or not, an object of this world has no node to wait for.
        del at_once
        self._count()
        found = self._world.find((kind, namespace, name))["metadata"]
        if found["uid"] != uid or version not in {None, int(found["resourceVersion"])}:
            message = f"{name} is another one"
            raise Conflict(message)
        self._world.delete((kind, namespace, name))

    async def pages(self, query: Query) -> AsyncIterator[Page]:
        # Nothing is in this world but jobs and their objects, and those are small.
        self._count()
        found = [
            copy.deepcopy(body)
            for key, body in list(self._world.objects.items())
            if key[0] is query.kind and query.namespace in {None, key[1]}
        ]
        yield Page([body for body in found if _is_selected(body, query)], self._world.version)

    async def watch(self, query: Query, version: str) -> AsyncGenerator[Event, None]:
        self._count()
        known: set[str] = set()
        for kind, how, body in list(self._world.events):
            if kind is not query.kind or query.namespace not in {
                None,
                body["metadata"]["namespace"],
            }:
                continue
            uid, at = body["metadata"]["uid"], body["metadata"]["resourceVersion"]
            event = _event_for(how, is_known=uid in known, is_selected=_is_selected(body, query))
            (known.discard if event is EventType.DELETED else known.add)(uid)
            if event is not None and int(at) > int(version):
                yield Event(event, copy.deepcopy(body), at)

    def _count(self) -> None:
        self._world.num_requests += 1
        if self._world.down:
            message = "the API server is away"
            raise Unavailable(message)


def _is_selected(body: Object, query: Query) -> bool:
    wanted = dict(part.split("=", 1) for part in query.labels.split(",") if part)
    labels: dict[str, str] = body["metadata"].get("labels", {})
    fields = (part.split("=", 1) for part in query.fields.split(",") if part)
    has_fields = all(_field(body, path) == value for path, value in fields)
    return has_fields and wanted.items() <= labels.items()


def _field(body: Object, path: str) -> Any:
    for name in path.split("."):
        body = body[name]
    return body


def watched_events(world: World, since: int) -> list[tuple[Kind, str, Object]]:
    """The events of what the operator watches, from a place in the list."""
    return [event for event in world.events[since:] if event[0] in KINDS]


def _event_for(how: str, *, is_known: bool, is_selected: bool) -> EventType | None:
    """What a watch of a selection tells of an event; None for nothing."""
    if how == "DELETED" or not is_selected:
        return EventType.DELETED if is_known else None
    return EventType.MODIFIED if is_known else EventType.ADDED


def _without_status(body: Object) -> Object:
    return {name: value for name, value in body.items() if name != "status"}


def _is_owned(body: Object, owner: Object) -> bool:
    owners = body["metadata"].get("ownerReferences", [])
    return any(each["uid"] == owner["metadata"]["uid"] for each in owners)


def _wanted(kind: Kind, spec: Object) -> int:
    if kind is Kind.Job:
        return 0 if spec["suspend"] else 1
    return int(spec["replicas"])


def _pod_status(phase: str, state: Object) -> Object:
    ready = "True" if phase == "Running" else "False"
    container = {"name": "disttrain", "restartCount": 0, "state": state}
    conditions = [{"type": "Ready", "status": ready}]
    return {"phase": phase, "conditions": conditions, "containerStatuses": [container]}
