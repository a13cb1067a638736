"""Schemas of the Prometheus operator's kinds for kubeconform, from its own released definitions.

They come as a Go module, as the cluster's programs do: Go compares the content with a public log
of checksums. Nothing of it is run.
"""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import yaml

from cluster import commands

MODULE: Final = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
KINDS: Final = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
_DEFINITIONS: Final = Path("example") / "prometheus-operator-crd"
_DOWNLOAD_LIMIT: Final = timedelta(minutes=5)


def write(folder: Path) -> None:
    """Write a strict schema for each kind, where kubeconform looks for those of the server."""
    for kind in KINDS:
        schema = _strict(_schema_of(kind))
        # The definition leaves to the API server what each object has.
        schema["properties"]["metadata"] = {"type": "object"}
        (folder / f"{kind.lower()}.json").write_text(json.dumps(schema))


def _schema_of(kind: str) -> Any:
    file = _module() / _DEFINITIONS / f"monitoring.coreos.com_{kind.lower()}s.yaml"
    (version,) = yaml.safe_load(file.read_text())["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


def _module() -> Path:
    printed = commands.run("go", "mod", "download", "-json", MODULE, limit=_DOWNLOAD_LIMIT)
    return Path(json.loads(printed)["Dir"])


def _strict(schema: Any) -> Any:
    """The same without room for fields that no property names."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _strict(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["string", "integer"]}
    if schema.get("type") == "object" and "properties" in schema:
        inner.setdefault("additionalProperties", False)
    return inner
