"""TFJob of Kubeflow's training operator as a contender.

The program is of our own: theirs has no flag for its limit of requests.
"""

from pathlib import Path
from typing import Any, Final

from builders import rivals
from builders.go_programs import GoPrograms
from builders.many_jobs import SPACE
from builders.rivals import REQUESTS_PER_SECOND, Rival

TYPES: Final = {"coordinator": "Chief", "shard": "PS", "replica": "Worker"}


def _job(name: str) -> dict[str, Any]:
    specs = {}
    for component, (number, template) in rivals.pod_templates(name).items():
        (container,) = template["spec"]["containers"]
        # Its webhook refuses any other name.
        container["name"] = "tensorflow"
        policy = template["spec"].pop("restartPolicy")
        replicas = {"replicas": number, "restartPolicy": policy, "template": template}
        specs[TYPES[component]] = replicas
    header = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob"}
    metadata = {"name": name, "namespace": SPACE}
    return {**header, "metadata": metadata, "spec": {"tfReplicaSpecs": specs}}


def _arguments(certificate: Path) -> list[str]:
    return [f"--requests-per-second={REQUESTS_PER_SECOND}", f"--cert-dir={certificate}"]


TFJOB: Final = Rival(
    name="tfjob",
    path=f"/apis/kubeflow.org/v1/namespaces/{SPACE}/tfjobs",
    definition="tfjobs.kubeflow.org",
    programs=GoPrograms(rivals.SOURCES / "tfjob", {"tfjob": "."}),
    module="github.com/kubeflow/training-operator",
    manifests="manifests/overlays/standalone",
    arguments=_arguments,
    job=_job,
)
