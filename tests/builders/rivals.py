"""Controllers of other projects that make the pods of many jobs, beside a control plane.

Each runs as its authors ship it, with their rights and webhooks, as a process in the control
plane's network. Two things differ: its limit of requests is that of the control plane's own
controllers, and the webhooks are reached by an address, with a certificate of the control plane's.
"""

import base64
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from builders import many_at_once, many_jobs, operator_rights, scraping
from builders.api_server import ApiServer
from builders.go_programs import GoPrograms
from builders.many_jobs import SPACE
from builders.measured_planes import BEGIN_SECONDS, LIMITS, Maker, serves
from cluster import Kubectl, certificates, layout, network
from cluster.bare import ControlPlane
from cluster.processes import Process

REQUESTS_PER_SECOND: Final = LIMITS.requests_per_second
"""As many as each controller of Kubernetes may ask there; the operator has no such limit."""
SOURCES: Final = Path(__file__).parents[1] / "benchmarks" / "contenders"
_EXAMPLE: Final = "some-name-of-a-job"
_READY_AT: Final = f"{layout.LINK_ADDRESS}:8081"
_SERVED: Final = "https://127.0.0.1:9443"
_RIGHTS: Final = {"ClusterRole", "ClusterRoleBinding"}
_JOBSET_MODULE: Final = "sigs.k8s.io/jobset"
_JOBSET_VERSION: Final = "jobset.x-k8s.io/v1alpha2"
_TFJOB_TYPES: Final = {"coordinator": "Chief", "shard": "PS", "replica": "Worker"}
_CALLS: Final = {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    name: str
    """Of its program, too."""
    path: str
    definition: str
    """Its custom resource definition's name; others of the same authors are not installed."""
    programs: GoPrograms
    module: str
    manifests: str
    """The module's folder with what is to be installed."""
    arguments: Callable[[Path], list[str]]
    """Of the program, for a folder with `tls.crt` and `tls.key`."""
    job: Callable[[str], dict[str, Any]]
    """A job of the name, with the operator's pods."""

    def is_built(self) -> bool:
        """Whether its program is."""
        return self.programs.are_built()

    @asynccontextmanager
    async def started(self, plane: ControlPlane) -> AsyncIterator[Maker]:
        """Install and start it; the control plane stops it. Yield what makes one of its jobs."""
        account = self._install(plane.kubectl)
        async with ApiServer(plane.kubeconfig, many_at_once.AT_ONCE) as user:
            await many_at_once.until(partial(serves, user, self.path), BEGIN_SECONDS)
            process = self._start(account)
            await many_at_once.until(partial(_is_ready, process), BEGIN_SECONDS)
            # Made once: what a job consists of costs more than to ask for it.
            yield partial(self._make, user, json.dumps(self.job(_EXAMPLE)))

    def _start(self, account: Kubectl) -> Process:
        program = self.programs.built() / self.name
        command = network.inside(program, *self.arguments(_webhook_certificate()))
        return Process.start(self.name, command, {"KUBECONFIG": str(account.kubeconfig)})

    async def _make(self, user: ApiServer, example: str, name: str) -> None:
        await user.post(self.path, json.loads(example.replace(_EXAMPLE, name)))

    def _install(self, administrator: Kubectl) -> Kubectl:
        wanted = self.programs.installation(administrator, self.module, self.manifests)
        objects = [_reachable(each) for each in wanted if self._is_had(each)]
        administrator.apply(*objects)
        rights = [each for each in objects if each["kind"] in _RIGHTS]
        return operator_rights.take(administrator, rights, self.name)

    def _is_had(self, found: dict[str, Any]) -> bool:
        if found["kind"] == "CustomResourceDefinition":
            return bool(found["metadata"]["name"] == self.definition)
        # The rest is what runs it in pods.
        return found["kind"] in _RIGHTS | _CALLS


def pod_templates(name: str) -> dict[str, tuple[int, dict[str, Any]]]:
    """How many pods the operator has of each component of a job, and their template.

    Without what only the operator's own objects provide, and with a policy that Jobs take.
    """
    found = {}
    for body in many_jobs.children_of(name):
        spec = body.get("spec", {})
        if "template" in spec:
            template = spec["template"]
            for own in ("serviceAccountName", "subdomain"):
                template["spec"].pop(own, None)
            template["spec"]["restartPolicy"] = "OnFailure"
            component = template["metadata"]["labels"]["app.kubernetes.io/component"]
            found[component] = (spec.get("replicas", spec.get("completions")), template)
    return found


def _webhook_certificate() -> Path:
    folder = layout.state() / "webhook"
    folder.mkdir()
    # It names 127.0.0.1, where the API server asks for webhooks.
    shutil.copy(certificates.API_SERVER.certificate, folder / "tls.crt")
    shutil.copy(certificates.API_SERVER.key, folder / "tls.key")
    return folder


def _reachable(found: dict[str, Any]) -> dict[str, Any]:
    """Return the object with its webhooks, if it has any, reached by an address."""
    authority = base64.b64encode(certificates.AUTHORITY.certificate.read_bytes()).decode()
    for webhook in found.get("webhooks", ()):
        path = webhook["clientConfig"]["service"]["path"]
        webhook["clientConfig"] = {"url": f"{_SERVED}{path}", "caBundle": authority}
    if found["kind"] == "CustomResourceDefinition":
        # There is one version to convert from and to.
        found["spec"].pop("conversion", None)
    return found


def _is_ready(process: Process) -> bool:
    process.check()
    return scraping.is_up(_READY_AT, "/readyz")


def _jobset(name: str) -> dict[str, Any]:
    """One JobSet with a Job for each component: the fewest objects that give these pods."""
    jobs = [
        {
            "name": component,
            "template": {"spec": {"completions": n, "parallelism": n, "template": template}},
        }
        for component, (n, template) in pod_templates(name).items()
    ]
    header = {"apiVersion": _JOBSET_VERSION, "kind": "JobSet"}
    metadata = {"name": name, "namespace": SPACE}
    return {**header, "metadata": metadata, "spec": {"replicatedJobs": jobs}}


def _jobset_arguments(certificate: Path) -> list[str]:
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
    path=f"/apis/{_JOBSET_VERSION}/namespaces/{SPACE}/jobsets",
    definition="jobsets.jobset.x-k8s.io",
    programs=GoPrograms(SOURCES / "jobset", {"jobset": _JOBSET_MODULE}),
    module=_JOBSET_MODULE,
    manifests="config/default",
    arguments=_jobset_arguments,
    job=_jobset,
)


def _tfjob(name: str) -> dict[str, Any]:
    specs = {}
    for component, (number, template) in pod_templates(name).items():
        (container,) = template["spec"]["containers"]
        # Its webhook refuses any other name.
        container["name"] = "tensorflow"
        policy = template["spec"].pop("restartPolicy")
        replicas = {"replicas": number, "restartPolicy": policy, "template": template}
        specs[_TFJOB_TYPES[component]] = replicas
    header = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob"}
    metadata = {"name": name, "namespace": SPACE}
    return {**header, "metadata": metadata, "spec": {"tfReplicaSpecs": specs}}


# Of Kubeflow's training operator; the program is of our own: theirs has no flag for its limit.
TFJOB: Final = Rival(
    name="tfjob",
    path=f"/apis/kubeflow.org/v1/namespaces/{SPACE}/tfjobs",
    definition="tfjobs.kubeflow.org",
    programs=GoPrograms(SOURCES / "tfjob", {"tfjob": "."}),
    module="github.com/kubeflow/training-operator",
    manifests="manifests/overlays/standalone",
    arguments=lambda certificate: [
        f"--requests-per-second={REQUESTS_PER_SECOND}",
        f"--cert-dir={certificate}",
    ],
    job=_tfjob,
)
