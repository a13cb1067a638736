"""An API server in memory: objects by path, and what was asked of it."""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from builders import api_rules
from disttrain.cluster.errors import AlreadyThere, Conflict, NotFound
from disttrain.cluster.interface import Object, Request, Verb
from disttrain.cluster.resources import CONFIG_MAPS, JOBS, PODS, Resource
from disttrain.errors import DistTrainError

NAMESPACE: Final = "research"
CREATED: Final = "2026-01-01T00:00:00Z"


@dataclass
class ApiInMemory:
    """Keeps what is created, as far as the tests look at it; nothing happens to it."""

    objects: dict[str, Object] = field(default_factory=dict)
    asked: list[Request] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    """Answers that are text, by path."""
    streams: dict[str, list[Iterable[str]]] = field(default_factory=dict)
    """Lines of long answers by path, in the order in which they are asked for."""
    refusals: dict[str, DistTrainError] = field(default_factory=dict)
    """Errors by path."""
    namespace: str = NAMESPACE

    def put(self, resource: Resource, found: Object) -> None:
        path = resource.path(self.namespace, found["metadata"]["name"])
        self.objects[path] = found

    def call(self, request: Request) -> Object:
        self.asked.append(request)
        if request.path in self.refusals:
            raise self.refusals[request.path]
        answers = {
            Verb.LIST: self._list,
            Verb.CREATE: self._create,
            Verb.PATCH: self._patch,
            Verb.DELETE: self._delete,
        }
        return answers.get(request.verb, self._get)(request)

    def text(self, request: Request) -> str:
        self.asked.append(request)
        if request.path not in self.texts:
            raise NotFound(request.path)
        return self.texts[request.path]

    @contextmanager
    def lines(self, request: Request) -> Iterator[Iterator[str]]:
        self.asked.append(request)
        waiting = self.streams.get(request.path)
        if not waiting:
            raise NotFound(request.path)
        yield iter(waiting.pop(0))

    def _get(self, request: Request) -> Object:
        if request.path not in self.objects:
            raise NotFound(request.path)
        return copy.deepcopy(self.objects[request.path])

    def _list(self, request: Request) -> Object:
        found = [each for path, each in self.objects.items() if path.startswith(request.path)]
        return {"items": copy.deepcopy(found), "metadata": {}}

    def _create(self, request: Request) -> Object:
        body = copy.deepcopy(request.body or {})
        path = f"{request.path}/{body['metadata']['name']}"
        if path in self.objects:
            raise AlreadyThere(path)
        uid = f"uid-{len(self.objects)}"
        body["metadata"] |= {"uid": uid, "creationTimestamp": CREATED, "resourceVersion": "1"}
        if request.query.get("dryRun") != "All":
            self.objects[path] = body
        return copy.deepcopy(body)

    def _patch(self, request: Request) -> Object:
        found, body = self._get(request), request.body or {}
        version = found["metadata"].get("resourceVersion")
        if (body.get("metadata") or {}).get("resourceVersion", version) != version:
            raise Conflict(f"{request.path}: another resourceVersion")
        self.objects[request.path] = api_rules.merged(found, body)
        return copy.deepcopy(self.objects[request.path])

    def _delete(self, request: Request) -> Object:
        found = self._get(request)
        for name, wanted in (request.body or {}).get("preconditions", {}).items():
            if found["metadata"].get(name) != wanted:
                raise Conflict(f"{request.path}: another {name}")
        del self.objects[request.path]
        return found


def a_job(name: str = "digits", **status: Any) -> Object:
    return {
        "apiVersion": "disttrain.dev/v1alpha1",
        "kind": "DistTrainJob",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-of-{name}",
            "generation": 1,
            "creationTimestamp": CREATED,
        },
        "spec": {
            "task": {"entrypoint": "digits:Digits", "source": {"configMap": "digits-code"}},
            "strategy": {"downpour": {}},
            "replicas": {"count": 3},
        },
        **({"status": status} if status else {}),
    }


def a_condition(kind: str, status: str = "True", message: str = "", reason: str = "") -> Object:
    return {
        "type": kind,
        "status": status,
        "reason": reason or f"{kind}Reason",
        "message": message,
        "lastTransitionTime": CREATED,
    }


def a_pod(name: str, role: str, **container: Any) -> Object:
    """A pod of the job digits, whose training process runs unless it is said otherwise."""
    own = {
        "name": "disttrain",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {}},
        **container,
    }
    return {
        "metadata": {
            "name": name,
            "creationTimestamp": CREATED,
            "labels": {"app.kubernetes.io/component": role},
        },
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running", "containerStatuses": [own]},
    }


def with_job(job: Object | None = None, *pods: Object) -> ApiInMemory:
    """An API server with one job and its pods."""
    api = ApiInMemory()
    api.put(JOBS, job or a_job())
    for pod in pods:
        api.put(PODS, pod)
    return api


def code_of(api: ApiInMemory) -> Object:
    """The one ConfigMap that is there."""
    start = CONFIG_MAPS.path(api.namespace, "digits-code-")
    (found,) = (each for path, each in api.objects.items() if path.startswith(start))
    return found
