"""A real Kueue on the test cluster, and a queue of it with a quota that tests change."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import yaml

from builders import helm, installations, product_images
from cluster import Kubectl
from cluster.hooks import Hooks

NAMESPACE: Final = "kueue-system"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
NAME: Final = "research"
FLAVOR: Final = {"kubernetes.io/os": "linux"}
"""The labels of its nodes; every node of the test cluster has them."""
EXTERNAL: Final = "DistTrainJob.v1alpha1.disttrain.dev"
PRIORITIES: Final = {"low": 10, "high": 100}
_OURS: Final = "disttrain-kueue"
_API: Final = "kueue.x-k8s.io/v1beta1"
_NOT_HAD: Final = {"APIService"}
"""Kueue's view of its queues, which a server of its own gives: VisibilityOnDemand."""
_KINDS: Final = "clusterqueues,resourceflavors,workloadpriorityclasses"


class Queue:
    """A queue of one namespace that has a quota of its own."""

    def __init__(self, namespace: Kubectl) -> None:
        self.kubectl = namespace

    def make(self, pods: int, cpu_millis: int) -> None:
        """Make it, with room for so many pods that ask for so much of a core each."""
        self._millis = cpu_millis
        evicting = {"withinClusterQueue": "LowerPriority"}
        priorities = [
            _object("WorkloadPriorityClass", name, value=value)
            for name, value in PRIORITIES.items()
        ]
        self.kubectl.apply(
            _object("ResourceFlavor", NAME, spec={"nodeLabels": FLAVOR}),
            *priorities,
            _object(
                "ClusterQueue",
                NAME,
                spec={"namespaceSelector": {}, "preemption": evicting, **self._quota(pods)},
            ),
            _object("LocalQueue", NAME, spec={"clusterQueue": NAME}),
        )

    def resize(self, pods: int) -> None:
        self._change(self._quota(pods))

    def stop(self) -> None:
        """Send all away that it has let in."""
        self._change({"stopPolicy": "HoldAndDrain"})

    def go_on(self) -> None:
        """Let them in again."""
        self._change({"stopPolicy": "None"})

    def put(self, resource: str, priority: str) -> None:
        """Put a job into it."""
        labels = (f"{QUEUE_LABEL}={NAME}", f"{PRIORITY_LABEL}={priority}")
        self.kubectl.run("label", resource, *labels)

    def waits(self, job: str) -> bool:
        """Whether Kueue knows of the job, and has no quota for it."""
        found = self._conditions(job)
        return any(each["type"] == "QuotaReserved" and each["status"] == "False" for each in found)

    def holds(self, job: str, kind: str) -> str:
        """The reason of what Kueue says of a job, if it is so; otherwise nothing."""
        found = self._conditions(job)
        reasons = (
            each["reason"] for each in found if each["type"] == kind and each["status"] == "True"
        )
        return next(reasons, "")

    def _change(self, spec: dict[str, Any]) -> None:
        change = json.dumps({"spec": spec})
        self.kubectl.run("patch", "clusterqueue", NAME, "--type=merge", "-p", change)

    def _conditions(self, job: str) -> list[dict[str, str]]:
        return [
            each
            for workload in self.kubectl.items("workloads.kueue.x-k8s.io")
            if workload["metadata"]["ownerReferences"][0]["name"] == job
            for each in workload.get("status", {}).get("conditions", [])
        ]

    def _quota(self, pods: int) -> dict[str, Any]:
        room = [{"name": "cpu", "nominalQuota": f"{pods * self._millis}m"}]
        flavors = [{"name": NAME, "resources": [*room, {"name": "memory", "nominalQuota": "1Ti"}]}]
        return {"resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]}


@contextmanager
def installed(kubectl: Kubectl, hooks: Hooks) -> Iterator[None]:
    """Kueue, and what the chart brings for it, as long as the context lasts."""
    kubectl = kubectl.within(NAMESPACE)
    installations.give_image(hooks, installations.OWN, _OURS)
    image = installations.give_image(hooks, installations.OTHERS, "kueue")
    objects = [*_kueue(kubectl, image), *_ours()]
    deployments = ("kueue-controller-manager", _OURS)
    # It asks its webhook about a flavor.
    trial = _object("ResourceFlavor", "trial")
    answers = partial(installations.lets_in, kubectl, trial)
    with installations.installed(kubectl, objects, deployments, answers):
        try:
            yield
        finally:
            # While their controllers run, which take their finalizers away.
            if answers():
                limit = installations.LIMIT
                kubectl.run("delete", _KINDS, "--all", "--ignore-not-found", limit=limit)


def _kueue(kubectl: Kubectl, image: str) -> list[dict[str, Any]]:
    objects = installations.wanted(kubectl, installations.KUEUE, image)
    for each in objects:
        if each["kind"] == "ConfigMap":
            (file, text), *_ = each["data"].items()
            configuration = yaml.safe_load(text)
            configuration["integrations"]["externalFrameworks"] = [EXTERNAL]
            configuration["featureGates"] = {"VisibilityOnDemand": False}
            each["data"][file] = yaml.safe_dump(configuration)
    return [each for each in objects if each["kind"] not in _NOT_HAD]


def _ours() -> list[dict[str, Any]]:
    values = {"imagePrefix": product_images.PREFIX, "kueue": {"enabled": True}}
    objects = helm.rendered(values, NAMESPACE)
    found = [each for each in objects if each["metadata"]["name"].startswith(_OURS)]
    assert len(found) == 7
    return found


def _object(kind: str, name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, **content}
