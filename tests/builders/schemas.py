"""Schemas for kubeconform, which would fetch them from the Internet.

Those of Kubernetes' own objects come from the API server, and are of exactly the version that runs.
Those of the Prometheus operator's kinds are its own released definitions; they come as a Go module,
as the cluster's programs do: Go compares the content with a public log of checksums. Nothing of it
is run.
"""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import yaml

from cluster import Kubectl, commands

MIXED: Final[dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
}
"""What the server takes in two forms, of which its schema names one."""
FILE_NAMES: Final = "{{.ResourceKind}}.json"
"""How kubeconform finds the file of a kind."""
_MODULE: Final = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
MONITORED: Final = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
_DEFINITIONS: Final = Path("example") / "prometheus-operator-crd"
_DOWNLOAD_LIMIT: Final = timedelta(minutes=5)


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


def write_monitoring(folder: Path) -> None:
    """Write a strict schema for each kind, where kubeconform looks for those of the server."""
    for kind in MONITORED:
        schema = _deeply_strict(_schema_of(kind))
        # The definition leaves to the API server what each object has.
        schema["properties"]["metadata"] = {"type": "object"}
        (folder / f"{kind.lower()}.json").write_text(json.dumps(schema))


def _schema_of(kind: str) -> Any:
    file = _module() / _DEFINITIONS / f"monitoring.coreos.com_{kind.lower()}s.yaml"
    (version,) = yaml.safe_load(file.read_text())["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


def _module() -> Path:
    printed = commands.run("go", "mod", "download", "-json", _MODULE, limit=_DOWNLOAD_LIMIT)
    return Path(json.loads(printed)["Dir"])


def _deeply_strict(schema: Any) -> Any:
    """The same without room for fields that no property names."""
    if isinstance(schema, list):
        return [_deeply_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _deeply_strict(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["string", "integer"]}
    if schema.get("type") == "object" and "properties" in schema:
        inner.setdefault("additionalProperties", False)
    return inner
