"""A real AppWrapper controller on the test cluster, and jobs that it wraps."""

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import yaml

from builders import installations, product_images, queues
from builders.cluster_training import ClusterTraining
from cluster import Kubectl
from cluster.hooks import Hooks

NAMESPACE: Final = "appwrapper-system"
_MANAGER: Final = "appwrapper-controller-manager"
_PAGE: Final = product_images.REPOSITORY / "docs" / "queues.md"
_PATIENCE: Final = "workload.codeflare.dev.appwrapper/admissionGracePeriodDuration"
_RIGHTS: Final = "appwrapper-disttrain"


class WrappedTraining(ClusterTraining):
    """A job in the AppWrapper of docs/queues.md, or in another that a test puts in its place."""

    def __init__(self, hooks: Hooks, namespace: Kubectl) -> None:
        super().__init__(hooks, namespace)
        self.wrapper = documented()
        """Of the job in it only the labels count."""

    def submit(self, manifest: dict[str, Any], *beside: dict[str, Any]) -> None:
        """Apply it in its AppWrapper, and wait for it."""
        wrapper = copy.deepcopy(self.wrapper)
        wrapper["metadata"]["name"] = self.name
        (component,) = wrapper["spec"]["components"]
        labels = component["template"]["metadata"].get("labels", {})
        component["template"] = manifest
        manifest["metadata"]["labels"] = labels
        self.kubectl.apply(*beside, wrapper)
        self.meet()

    def meet(self) -> None:
        """Wait until the job is there, and note which one it is."""
        self.wait_until(lambda: self.has(self.resource), "its AppWrapper makes it")
        super().meet()

    def told(self) -> dict[str, Any]:
        status: dict[str, Any] = self.kubectl.get("appwrapper", self.name).get("status", {})
        return status

    def complaint(self) -> tuple[str, str]:
        """Why the AppWrapper believes that something is wrong: the reason and the message."""
        (found,) = (each for each in self.told()["conditions"] if each["type"] == "Unhealthy")
        return found["reason"], found["message"]

    def wait_for_its_wrapper(self, phase: str) -> None:
        """Return once the AppWrapper is in a phase."""
        self.wait_until(lambda: self.told().get("phase") == phase, f"AppWrapper {phase}")


def documented(patience: str = "") -> dict[str, Any]:
    """Return the AppWrapper that docs/queues.md has as a sample, or one with less patience."""
    blocks = re.findall(r"^ *```yaml\n(.*?)^ *```", _PAGE.read_text(), re.DOTALL | re.MULTILINE)
    samples = [yaml.safe_load(block) for block in blocks]
    (found,) = (each for each in samples if each.get("kind") == "AppWrapper")
    if patience:
        found["metadata"]["annotations"][_PATIENCE] = patience
    return dict(found)


def with_the_queue() -> dict[str, Any]:
    """Return one that is in the queue itself, for all pods of a job."""
    found = documented()
    metadata, (component,) = found["metadata"], found["spec"]["components"]
    metadata["labels"] = component["template"]["metadata"].pop("labels")
    component["podSets"] = [
        {"path": f"template.spec.{role}.template", "replicas": pods}
        for role, pods in {"coordinator": 1, "parameterServer": 2, "replicas": 2}.items()
    ]
    return found


@contextmanager
def installed(kubectl: Kubectl, hooks: Hooks) -> Iterator[None]:
    """The controller, with the rights that the page asks for, as long as the context lasts."""
    kubectl = kubectl.within(NAMESPACE)
    image = installations.give_image(hooks, installations.OTHERS, "appwrapper")
    objects = installations.wanted(kubectl, installations.APPWRAPPER, image) + _rights()
    # AppWrapper's webhook and Kueue's are asked about an AppWrapper that has a queue.
    trial = documented()
    trial["metadata"].setdefault("labels", {})[queues.QUEUE_LABEL] = queues.NAME
    answers = partial(installations.lets_in, kubectl, trial)
    with installations.installed(kubectl, objects, [_MANAGER], answers):
        yield


def _rights() -> list[dict[str, Any]]:
    api = "rbac.authorization.k8s.io"
    metadata = {"name": _RIGHTS}
    rule = {
        "apiGroups": ["disttrain.dev"],
        "resources": ["disttrainjobs"],
        "verbs": ["get", "list", "watch", "create", "delete"],
    }
    role = {"apiGroup": api, "kind": "ClusterRole", "name": _RIGHTS}
    account = {"kind": "ServiceAccount", "name": _MANAGER, "namespace": NAMESPACE}
    header = {"apiVersion": f"{api}/v1", "metadata": metadata}
    return [
        {**header, "kind": "ClusterRole", "rules": [rule]},
        {**header, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [account]},
    ]
