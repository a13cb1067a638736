"""Schemas of Kubernetes' own objects for kubeconform, from the API server itself.

kubeconform would fetch them from the Internet; these are of exactly the version that runs.
"""

import json
from pathlib import Path
from typing import Any, Final

from cluster import Kubectl

MIXED: Final[dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
}
"""What the server takes in two forms, of which its schema names one."""
FILE_NAMES: Final = "{{.ResourceKind}}.json"
"""How kubeconform finds the file of a kind."""


def write(kubectl: Kubectl, folder: Path, kinds: set[str]) -> str:
    """Write a strict schema for each kind that the server knows; returns kubeconform's location."""
    definitions = json.loads(kubectl.run("get", "--raw", "/openapi/v2"))["definitions"]
    strict = {name: MIXED.get(name) or _strict(one) for name, one in definitions.items()}
    for name, definition in definitions.items():
        for kind in {each["kind"] for each in _kinds(definition)} & kinds:
            content = {"$ref": f"#/definitions/{name}", "definitions": strict}
            (folder / f"{kind.lower()}.json").write_text(json.dumps(content))
    return f"{folder}/{FILE_NAMES}"


def _kinds(definition: dict[str, Any]) -> list[dict[str, str]]:
    # Some kinds are of several groups, such as DeleteOptions; they have no file of their own.
    found: list[dict[str, str]] = definition.get("x-kubernetes-group-version-kind", [])
    return found if len(found) == 1 else []


def _strict(definition: dict[str, Any]) -> dict[str, Any]:
    closed = "properties" in definition and "additionalProperties" not in definition
    return {**definition, "additionalProperties": False} if closed else definition
