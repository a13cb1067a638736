"""Kueue and AppWrapper's controller, and what connects jobs with Kueue, on the test cluster.

Their programs and images are built here; the rest is as their authors install it.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from builders import product_images
from builders.go_programs import GoPrograms
from cluster import Kubectl, commands, images
from cluster.errors import CommandFailed
from cluster.hooks import Hooks

LIMIT: Final = timedelta(minutes=5)
"""Their certificates take a minute to reach them, on cores that nobody else uses."""
OWN: Final = GoPrograms(product_images.REPOSITORY / "kueue", {"disttrain-kueue": "."})
KUEUE: Final = "sigs.k8s.io/kueue"
APPWRAPPER: Final = "github.com/project-codeflare/appwrapper"
OTHERS: Final = GoPrograms(
    product_images.REPOSITORY / "tests/end_to_end/real_jobs/queues",
    {"kueue": f"{KUEUE}/cmd/kueue", "appwrapper": f"{APPWRAPPER}/cmd"},
)


def give_image(hooks: Hooks, programs: GoPrograms, name: str) -> str:
    """Give every node an image with one of the programs, by our own Containerfile: its tag."""
    recipe = images.Recipe(
        containerfile=product_images.REPOSITORY / "images" / "kueue" / "Containerfile",
        context=programs.built(),
        tag=f"{product_images.PREFIX}{name}:{product_images.VERSION}",
        arguments={"PROGRAM": name},
    )
    return product_images.build_and_load(hooks, recipe)


def wanted(kubectl: Kubectl, module: str, image: str) -> list[dict[str, Any]]:
    """Return what a module's authors install, but small and with an image of the nodes."""
    objects = OTHERS.installation(kubectl, module, "config/default")
    for each in objects:
        if each["kind"] == "Deployment":
            (container,) = each["spec"]["template"]["spec"]["containers"]
            container["image"] = image
            container["imagePullPolicy"] = "IfNotPresent"
            container["resources"] = {"requests": {"cpu": "50m", "memory": "64Mi"}}
    return objects


@contextmanager
def installed(
    kubectl: Kubectl,
    objects: Sequence[dict[str, Any]],
    deployments: Sequence[str],
    answers: Callable[[], bool],
) -> Iterator[None]:
    """The objects and their webhooks, as long as the context lasts."""
    try:
        _each_namespace(kubectl, objects, Kubectl.apply)
        for each in deployments:
            kubectl.wait_until("Available", f"deployment/{each}", LIMIT)
        commands.wait_until(answers, f"the webhooks of {deployments} answer", limit=LIMIT)
        yield
    finally:
        _each_namespace(kubectl, objects[::-1], _delete)


def lets_in(kubectl: Kubectl, trial: dict[str, Any]) -> bool:
    """Whether the API server and all webhooks would take an object."""
    try:
        kubectl.run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(trial))
    except CommandFailed:
        return False
    return True


def _each_namespace(
    kubectl: Kubectl, objects: Sequence[dict[str, Any]], act: Callable[..., None]
) -> None:
    """Act on those of each namespace by themselves, as kubectl wants it; on those of none first."""
    found: dict[str, list[dict[str, Any]]] = {"": []}
    for each in objects:
        found.setdefault(each["metadata"].get("namespace", ""), []).append(each)
    for namespace, inside in found.items():
        act(kubectl.within(namespace or "default"), *inside)


def _delete(kubectl: Kubectl, *objects: dict[str, Any]) -> None:
    content = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    kubectl.run("delete", "--ignore-not-found", "-f", "-", stdin=content, limit=LIMIT)
