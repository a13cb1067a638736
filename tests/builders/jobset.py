"""JobSet as a contender, by its own program."""

import json
from pathlib import Path
from typing import Any, Final

from builders import rivals
from builders.go_programs import GoPrograms
from builders.many_jobs import SPACE
from builders.rivals import REQUESTS_PER_SECOND, Rival

MODULE: Final = "sigs.k8s.io/jobset"
API_VERSION: Final = "jobset.x-k8s.io/v1alpha2"


def _job(name: str) -> dict[str, Any]:
    """One JobSet with a Job for each component: the fewest objects that give these pods."""
    jobs = [
        {
            "name": component,
            "template": {"spec": {"completions": n, "parallelism": n, "template": template}},
        }
        for component, (n, template) in rivals.pod_templates(name).items()
    ]
    header = {"apiVersion": API_VERSION, "kind": "JobSet"}
    metadata = {"name": name, "namespace": SPACE}
    return {**header, "metadata": metadata, "spec": {"replicatedJobs": jobs}}


def _arguments(certificate: Path) -> list[str]:
    rate = REQUESTS_PER_SECOND
    configuration = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "webhook": {"certDir": str(certificate)},
        "metrics": {"bindAddress": "0"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": rate, "burst": rate},
    }
    file = certificate / "configuration.json"
    file.write_text(json.dumps(configuration))
    # How much it logs is as its authors install it.
    return [f"--config={file}", "--zap-log-level=2"]


JOBSET: Final = Rival(
    name="jobset",
    path=f"/apis/{API_VERSION}/namespaces/{SPACE}/jobsets",
    definition="jobsets.jobset.x-k8s.io",
    programs=GoPrograms(rivals.SOURCES / "jobset", {"jobset": MODULE}),
    module=MODULE,
    manifests="config/default",
    arguments=_arguments,
    job=_job,
)
