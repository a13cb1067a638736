"""Sights of objects, as watches and lists bring them, into the inventory. Pure."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from disttrain_operator.kinds import WORKLOADS, Kind
from disttrain_operator.observed import parsing, pods
from disttrain_operator.observed.inventory import Inventory
from disttrain_operator.observed.news import News
from disttrain_operator.observed.records import JobKey

CHILDREN: Final = (
    Kind.StatefulSet,
    Kind.Deployment,
    Kind.Job,
    Kind.Service,
    Kind.ConfigMap,
    Kind.ServiceAccount,
    Kind.Role,
    Kind.RoleBinding,
    Kind.PodDisruptionBudget,
    Kind.NetworkPolicy,
    Kind.PersistentVolumeClaim,
)
"""What is made for a job, but for the Secret, which nobody may read."""

KINDS: Final = (Kind.DistTrainJob, *CHILDREN, Kind.Pod, Kind.Event)
"""All that is watched."""

DECISIVE: Final = (*WORKLOADS, Kind.Pod)
"""What decides whether a job goes on."""

REFUSAL: Final = "FailedCreate"
"""Reason of the Events that tell why a workload cannot create its pods: nothing else does."""

STATELESS: Final = frozenset(CHILDREN) - {*WORKLOADS, Kind.PersistentVolumeClaim}
"""Kinds of which only the metadata matter."""


class Sight(NamedTuple):
    """What a sight of an object means."""

    job: JobKey
    news: News


NOTHING: Final = Sight(JobKey("", ""), News.NOTHING)
"""Of an object that belongs to no job."""


class Sights:
    """Takes in what was seen."""

    def __init__(self, inventory: Inventory, own_fields: frozenset[str]) -> None:
        self._inventory = inventory
        self._own_fields = own_fields
        self._listings: list[set[str]] = []

    @contextmanager
    def listing(self) -> Iterator[set[str]]:
        """Give the uids of what is deleted while a list is read."""
        gone: set[str] = set()
        self._listings.append(gone)
        try:
            yield gone
        finally:
            self._listings.remove(gone)

    def seen(self, kind: Kind, body: dict[str, Any]) -> Sight:
        """Keep an object; returns what is new by it."""
        if kind is Kind.DistTrainJob:
            job = parsing.job(body, self._own_fields)
            return Sight(job.key, self._inventory.put_job(job))
        if kind is Kind.Event:
            return self._refused(body)
        if kind is Kind.Pod:
            pod = pods.record(body)
            return NOTHING if pod is None else Sight(pod.job, self._inventory.put_pod(pod))
        child = parsing.child(kind, body)
        return Sight(child.job, self._inventory.put_child(child))

    def gone(self, kind: Kind, body: dict[str, Any]) -> Sight:
        """Forget an object; returns what is new by that."""
        if kind is Kind.Event:
            return NOTHING
        metadata = parsing.mapping(body.get("metadata"))
        name, uid = str(metadata.get("name")), str(metadata.get("uid"))
        for listing in self._listings:
            listing.add(uid)
        if kind is Kind.DistTrainJob:
            key = JobKey(str(metadata.get("namespace")), name)
            return _sight(key, self._inventory.drop_job(key, uid))
        key = parsing.job_key(body)
        if kind is Kind.Pod:
            self.seen(kind, body)
            return _sight(key, self._inventory.drop_pod(key, name, uid))
        return _sight(key, self._inventory.drop_child(key, (kind, name), uid))

    def _refused(self, event: dict[str, Any]) -> Sight:
        if event.get("reason") != REFUSAL:
            return NOTHING
        about = parsing.mapping(event.get("involvedObject"))
        name, _, _ = str(about.get("name", "")).rpartition("-")
        key = JobKey(str(about.get("namespace", "")), name)
        message = parsing.text(event.get("message"))
        return _sight(key, self._inventory.put_refusal(key, str(about.get("uid")), message))


def _sight(job: JobKey, changed: bool) -> Sight:  # noqa: FBT001 - What a call returned.
    return Sight(job, News.DECISIVE if changed else News.NOTHING)
