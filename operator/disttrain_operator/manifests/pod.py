"""The pod template of a role: ours, the user's merged in, and what must stay as it is."""

from disttrain.job import cluster_labels, cluster_names
from disttrain.job.names import Role
from disttrain_operator import json_text
from disttrain_operator.manifests import template, volume
from disttrain_operator.manifests.config import PodSecurity
from disttrain_operator.manifests.container import container, threads_variable
from disttrain_operator.manifests.context import Context, Object
from disttrain_operator.manifests.volume import volumes

GRACE_SECONDS = 120
"""A replica finishes its step, a shard saves its values, the coordinator checkpoints."""

UNREACHABLE_SECONDS = 30
"""After so long on a lost node a pod is deleted; the default is five minutes."""

_NO_MESH_LABELS = {"sidecar.istio.io/inject": "false", "istio.io/dataplane-mode": "none"}
_NO_MESH_ANNOTATIONS = {"sidecar.istio.io/inject": "false", "linkerd.io/inject": "disabled"}
"""A mesh would stand between processes that encrypt already, and keep Jobs from ending. Istio looks
at labels, in its ambient mode at the second; older releases and Linkerd at annotations."""


def pod_template(context: Context, role: Role) -> Object:
    ours = template.merge(_ours(context, role), json_text.read(context.config.pod_defaults))
    return _fixed(context, role, template.merge(ours, theirs(context, role)))


def theirs(context: Context, role: Role) -> Object:
    """The user's template; empty if there is none."""
    spec = context.job.spec
    found = {
        Role.COORDINATOR: spec.coordinator.template,
        Role.SHARD: spec.parameter_server.template,
        Role.REPLICA: spec.replicas.template,
    }[role]
    return {} if found is None else {"metadata": found.metadata, "spec": found.spec}


def _ours(context: Context, role: Role) -> Object:
    spec: Object = {
        "containers": [container(context, role)],
        "volumes": volumes(context, role),
        "securityContext": {
            **json_text.read(context.config.pod_security_context),
            # Changing the owner of many checkpoints at each start would take minutes.
            "fsGroupChangePolicy": "OnRootMismatch",
        },
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "enableServiceLinks": False,
    }
    if volume.is_for_one_node(context):
        spec["affinity"] = {"podAffinity": _beside_each_other(context)}
    if context.config.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in context.config.image_pull_secrets]
    labels = {**context.labels(role), **_NO_MESH_LABELS}
    metadata = {"labels": labels, "annotations": dict(_NO_MESH_ANNOTATIONS)}
    return {"metadata": metadata, "spec": spec}


def _beside_each_other(context: Context) -> Object:
    """Where the first of the job's pods is all others are, since their volume is there."""
    others = {"matchLabels": cluster_labels.all_pods(context.name, context.uid)}
    term = {"labelSelector": others, "topologyKey": "kubernetes.io/hostname"}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _fixed(context: Context, role: Role, merged: Object) -> Object:
    """Put back what controllers and services find the pods by."""
    metadata = {**merged.get("metadata", {})}
    labels = metadata.get("labels")
    metadata["labels"] = {**(labels if isinstance(labels, dict) else {}), **context.labels(role)}
    spec = {**merged.get("spec", {}), "restartPolicy": "Always"}
    if role is Role.COORDINATOR:
        spec["restartPolicy"] = "OnFailure"
        spec["subdomain"] = cluster_names.service(context.name)
        spec.setdefault("serviceAccountName", cluster_names.COORDINATOR_ACCOUNT)
    # Left away, Kubernetes would mount one.
    spec.setdefault("automountServiceAccountToken", role is Role.COORDINATOR)
    spec["tolerations"] = _with_ours(spec.get("tolerations"))
    spec["containers"] = [_with_threads(each) for each in spec.get("containers") or []]
    if context.config.pod_security is PodSecurity.RESTRICTED:
        for name in ("containers", "initContainers"):
            if spec.get(name):
                spec[name] = [_with_rights(each) for each in spec[name]]
    return {**merged, "metadata": metadata, "spec": spec}


def _with_rights(container: Object) -> Object:
    """Of a container that says nothing of its rights: no more than ours has."""
    if "securityContext" in container:
        return container
    rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {**container, "securityContext": rights}


def _with_threads(each: Object) -> Object:
    if each.get("name") != cluster_names.CONTAINER:
        return each
    variable = threads_variable(each)
    return each if variable is None else {**each, "env": [*(each.get("env") or []), variable]}


def _with_ours(theirs: list[Object] | None) -> list[Object]:
    """A list replaces a list, and a template that tolerates GPUs says nothing of lost nodes."""
    given = theirs or []
    said = [each.get("key") for each in given]
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
