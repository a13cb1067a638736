"""Where objects lie on the API server, the requests for them, and how people name jobs. Pure."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from disttrain.cluster.errors import NotFound, WrongInput
from disttrain.cluster.interface import Object, Request, Verb
from disttrain.job.cluster_names import PLURAL
from disttrain.job.spec import API_VERSION, KIND

PAGE: Final = "500"
"""Objects in one answer to a list."""

TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
"""Asks for the table that kubectl prints: the API server knows the columns of every kind."""
_GROUP, _VERSION = API_VERSION.split("/")
_SINGULAR: Final = PLURAL.removesuffix("s")
KINDS: Final = frozenset(
    f"{word}{suffix}"
    for word in ("dtj", _SINGULAR, PLURAL)
    for suffix in ("", f".{_GROUP}", f".{_VERSION}.{_GROUP}")
)
"""Words for the kind, in small letters, as kubectl takes them."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object."""

    root: str
    """Path of its API group's version."""
    plural: str
    word: str
    """How kubectl writes the kind before a name."""

    def path(self, namespace: str | None, name: str = "", part: str = "") -> str:
        """The path of all objects, of one, or of a part of one; None: of all namespaces."""
        where = f"namespaces/{namespace}/" if namespace is not None else ""
        below = "".join(f"/{each}" for each in (name, part) if each)
        return f"{self.root}/{where}{self.plural}{below}"


JOBS: Final = Resource(f"/apis/{API_VERSION}", PLURAL, f"{KIND.lower()}.disttrain.dev")
PODS: Final = Resource("/api/v1", "pods", "pod")
CONFIG_MAPS: Final = Resource("/api/v1", "configmaps", "configmap")
EVENTS: Final = Resource("/api/v1", "events", "event")
CLAIMS: Final = Resource("/api/v1", "persistentvolumeclaims", "persistentvolumeclaim")
POD_METRICS: Final = Resource("/apis/metrics.k8s.io/v1beta1", "pods", "podmetrics")


def get(resource: Resource, namespace: str, name: str, part: str = "") -> Request:
    return Request(verb=Verb.GET, path=resource.path(namespace, name, part))


def listing(resource: Resource, namespace: str | None, **query: str) -> Request:
    """Objects of one namespace, or of all."""
    return Request(
        verb=Verb.LIST, path=resource.path(namespace), query={"limit": PAGE, **_given(query)}
    )


def watch(resource: Resource, namespace: str | None, **query: str) -> Request:
    return Request(
        verb=Verb.WATCH, path=resource.path(namespace), query={"watch": "true", **_given(query)}
    )


def create(resource: Resource, namespace: str, body: Object, query: Mapping[str, str]) -> Request:
    return Request(verb=Verb.CREATE, path=resource.path(namespace), query=query, body=body)


def patch(resource: Resource, namespace: str, name: str, body: Object, part: str = "") -> Request:
    return Request(verb=Verb.PATCH, path=resource.path(namespace, name, part), body=body)


def delete(resource: Resource, namespace: str, name: str, uid: str) -> Request:
    """Delete this very object, not a later one of its name, and what belongs to it afterwards."""
    body = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": {"uid": uid},
    }
    return Request(verb=Verb.DELETE, path=resource.path(namespace, name), body=body)


def _given(query: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in query.items() if value}


def is_qualified(text: str) -> bool:
    """Whether it says by itself that it means a job of a cluster."""
    kind, slash, name = text.partition("/")
    return bool(slash and name) and kind.lower() in KINDS


def job_name(text: str) -> str:
    """The job's name. Raises WrongInput for another kind of object."""
    kind, slash, found = text.rpartition("/")
    if (slash and kind.lower() not in KINDS) or not found:
        raise WrongInput(f"'{text}' names no job: expected NAME or dtj/NAME")
    return found


def no_job(wanted: str, namespace: str, others: Iterable[str]) -> NotFound:
    """The error for a job that is not there, with the nearest one that is."""
    near = difflib.get_close_matches(wanted, list(others), n=1)
    hint = f"; did you mean {near[0]}?" if near else "; `disttrain list -A` shows all jobs"
    return NotFound(f"no job {wanted} in namespace {namespace}{hint}")
