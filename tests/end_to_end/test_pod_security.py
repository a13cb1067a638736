"""Our table of the Pod Security Standards against the one of the API server, pod by pod."""

import copy
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from builders.pod_templates import BEYOND_BASELINE, BEYOND_RESTRICTED, WITHIN_RESTRICTED
from cluster import Kubectl, namespaces
from cluster.errors import CommandFailed
from disttrain_operator.manifests.config import PodSecurity
from disttrain_operator.manifests.pod_security import violations

TEMPLATES = {**BEYOND_BASELINE, **BEYOND_RESTRICTED, **WITHIN_RESTRICTED}
BEYOND = "violates PodSecurity"
ENFORCED = (PodSecurity.BASELINE, PodSecurity.RESTRICTED)


@pytest.fixture(scope="module")
def places(kubectl: Kubectl) -> Iterator[dict[PodSecurity, Kubectl]]:
    """A namespace for each level that can be violated."""
    names = {level: f"{level}-{os.urandom(3).hex()}" for level in ENFORCED}
    yield {level: namespaces.make(kubectl, name, level) for level, name in names.items()}
    for name in names.values():
        namespaces.remove(kubectl, name)


def answer(place: Kubectl, template: dict[str, Any]) -> str:
    """What the API server says to such a pod; empty if it takes it."""
    spec = copy.deepcopy(template["spec"])
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind, []):
            container["image"] = "example.com/nothing:1"
    metadata = {"name": "asked", **template["metadata"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    try:
        place.run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
    except CommandFailed as error:
        return str(error)
    return ""


@pytest.mark.nightly
def test_the_api_server_agrees_with_our_table(places: dict[PodSecurity, Kubectl]) -> None:
    compared, differing = set(), []
    for name, template in TEMPLATES.items():
        for level, place in places.items():
            said = answer(place, template)
            if said and BEYOND not in said:
                # No pod at all, at whatever level: `null` where it wants a value, for example.
                continue
            compared.add(name)
            if bool(violations(template, level)) != bool(said):
                differing.append(f"{name} at {level}: {said or 'taken'}")
    assert not differing
    assert len(compared) > 0.8 * len(TEMPLATES), set(TEMPLATES) - compared
