"""The pod template of a role: ours, the user's merged in, and what must stay as it is."""

from typing import Any

from disttrain.job import cluster_names
from disttrain.job.names import Role
from disttrain.job.pod_template import PodTemplate
from disttrain_operator.manifests import template
from disttrain_operator.manifests.config import PodFeature
from disttrain_operator.manifests.container import container, threads_variable
from disttrain_operator.manifests.context import Context, Object
from disttrain_operator.manifests.volumes import volumes

USER = 65532
"""A number, so that the kubelet can tell that it is not root."""

GRACE_SECONDS = 120
"""A replica finishes its step, a shard saves its values, the coordinator checkpoints."""

UNREACHABLE_SECONDS = 30
"""After so long on a lost node a pod is deleted; the default is five minutes."""

_NO_SIDECARS = {"sidecar.istio.io/inject": "false", "linkerd.io/inject": "disabled"}
"""A mesh would stand between processes that encrypt already, and keep Jobs from ending."""


def pod_template(context: Context, role: Role) -> Object:
    """The template with the user's merged in."""
    merged = template.merge(_ours(context, role), _theirs(context, role))
    return _fixed(context, role, merged)


def given(context: Context, role: Role) -> PodTemplate | None:
    """The user's template of a role."""
    spec = context.job.spec
    return {
        Role.COORDINATOR: spec.coordinator.template,
        Role.SHARD: spec.parameter_server.template,
        Role.REPLICA: spec.replicas.template,
    }[role]


def _theirs(context: Context, role: Role) -> Object:
    found = given(context, role)
    return {} if found is None else {"metadata": found.metadata, "spec": found.spec}


def _ours(context: Context, role: Role) -> Object:
    spec: Object = {
        "containers": [container(context, role)],
        "volumes": volumes(context, role),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            # Changing the owner of many checkpoints at each start would take minutes.
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "enableServiceLinks": False,
        "automountServiceAccountToken": role is Role.COORDINATOR,
    }
    if context.config.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in context.config.image_pull_secrets]
    # Istio looks at the label, older releases and Linkerd at the annotation.
    istio = {"sidecar.istio.io/inject": "false"}
    metadata = {"labels": {**context.labels(role), **istio}, "annotations": dict(_NO_SIDECARS)}
    return {"metadata": metadata, "spec": spec}


def _fixed(context: Context, role: Role, merged: Object) -> Object:
    """Put back what controllers and services find the pods by."""
    metadata = {**merged.get("metadata", {})}
    labels = metadata.get("labels")
    metadata["labels"] = {**(labels if isinstance(labels, dict) else {}), **context.labels(role)}
    spec = {**merged.get("spec", {}), "restartPolicy": "Always"}
    if role is Role.COORDINATOR:
        spec["restartPolicy"] = "OnFailure"
        spec["subdomain"] = cluster_names.service(context.name)
        if PodFeature.SERVICE_ACCOUNT not in context.config.allowed_features:
            spec["serviceAccountName"] = cluster_names.coordinator_job(context.name)
        spec.setdefault("serviceAccountName", cluster_names.coordinator_job(context.name))
    spec["tolerations"] = _with_ours(spec.get("tolerations"))
    containers = spec.get("containers")
    if isinstance(containers, list):
        spec["containers"] = [_with_threads(each) for each in containers]
    return {**merged, "metadata": metadata, "spec": spec}


def _with_threads(each: Object) -> Object:
    if not isinstance(each, dict) or each.get("name") != cluster_names.CONTAINER:
        return each
    variable = threads_variable(each)
    return each if variable is None else {**each, "env": [*(each.get("env") or []), variable]}


def _with_ours(theirs: Any) -> Any:
    """A list replaces a list, and a template that tolerates GPUs says nothing of lost nodes."""
    if not isinstance(theirs, list | None):
        return theirs
    given = theirs or []
    said = {each.get("key") for each in given if isinstance(each, dict)}
    if None in said:
        # Whatever the taint: theirs for ever, unless they say otherwise.
        return given
    ours = (_tolerated(state) for state in ("unreachable", "not-ready"))
    return [*given, *(each for each in ours if each["key"] not in said)]


def _tolerated(state: str) -> Object:
    return {
        "key": f"node.kubernetes.io/{state}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": UNREACHABLE_SECONDS,
    }
