"""The CustomResourceDefinition of jobs, from the types of the manifest and of its status. Pure."""

from typing import Any, Final

from disttrain.job.cluster_names import PLURAL
from disttrain.job.spec import API_VERSION, KIND, DistTrainJob
from disttrain.job.status import JobStatus
from disttrain_generators import admission_rules, structural_schema
from disttrain_generators.structural_schema import VALIDATIONS, Schema

GROUP, VERSION = API_VERSION.split("/")
NAME: Final = f"{PLURAL}.{GROUP}"

Definition = dict[str, Any]
"""A Kubernetes object."""


def definition() -> Definition:
    """Return the object to apply. Helm keeps it, with all jobs, when the chart is uninstalled."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME, "annotations": {"helm.sh/resource-policy": "keep"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": PLURAL.removesuffix("s"),
                "shortNames": ["dtj"],
                "categories": ["all"],
            },
            "versions": [_version()],
        },
    }


def _version() -> Definition:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas.count",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [*_COLUMNS, *_WIDE_COLUMNS, _AGE],
    }


def _schema() -> Schema:
    whole = structural_schema.of_type(DistTrainJob)
    spec = whole["properties"]["spec"]
    spec[VALIDATIONS] = admission_rules.of_spec(spec)
    return {
        "type": "object",
        "description": whole["description"],
        "required": ["metadata", "spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            # The API server knows its own metadata, and refuses a schema that describes it.
            "metadata": {"type": "object"},
            "spec": spec,
            # Server-side apply refuses a status as a whole for one field that is not declared: a
            # coordinator that outlives a rollback has fields that the older schema does not know.
            "status": structural_schema.with_later_fields(structural_schema.of_type(JobStatus)),
        },
        VALIDATIONS: [admission_rules.NAME],
    }


def _column(name: str, path: str, kind: str, meaning: str) -> dict[str, str]:
    return {"name": name, "jsonPath": path, "type": kind, "description": meaning}


_COLUMNS: Final = (
    _column("Phase", ".status.phase", "string", "How the job is, in a word."),
    _column("Strategy", ".status.strategy", "string", "How the replicas work together."),
    _column("Shards", ".status.shards", "integer", "Shards that are wanted."),
    _column("Replicas", ".spec.replicas.count", "integer", "Replicas that are wanted."),
    _column("Progress", ".status.training.progressPercent", "integer", "Percent that is done."),
    _column("Measure", ".status.training.measure", "string", "A measure of the last evaluation."),
)

_WIDE_COLUMNS: Final = tuple(
    {**column, "priority": 1}
    for column in (
        _column("Ready", ".status.readyReplicas", "integer", "Replicas that have joined."),
        _column("Samples/s", ".status.training.speed", "string", "Speed, lately."),
        _column("Loss", ".status.training.recentLoss", "string", "Mean loss, lately."),
        _column("At-Risk", ".status.parameterServer.updatesAtRisk", "integer", "Not yet saved."),
    )
)

_AGE: Final = _column("Age", ".metadata.creationTimestamp", "date", "Since it was created.")
