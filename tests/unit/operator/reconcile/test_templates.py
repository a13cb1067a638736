"""What a job's templates lead to: pods within the administrator's limits, or a condition."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import operator_jobs
from disttrain.job.names import Role
from disttrain_operator.manifests.config import ManifestConfig, PodSecurity
from disttrain_operator.manifests.pod import pod_template
from disttrain_operator.manifests.pod_security import violations
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.policies.problem import Problem, ProblemType
from disttrain_operator.reconcile import desired, plan
from disttrain_operator.reconcile.actions import Create, Knowledge

TEAM = ManifestConfig(allowed_service_accounts=("team-*",))
BASELINE = ManifestConfig(pod_security=PodSecurity.BASELINE)
PRIVILEGED = ManifestConfig(pod_security=PodSecurity.PRIVILEGED)


def replicas(metadata: Any = None, **spec: Any) -> dict[str, Any]:
    template = {"metadata": metadata or {}, "spec": spec}
    return {"replicas": {"count": 1, "template": template}}


def ours(**fields: Any) -> dict[str, Any]:
    return replicas(containers=[{"name": "disttrain", **fields}])


def problems(changed: dict[str, Any], config: ManifestConfig | None = None) -> list[Problem]:
    found = desired.of(operator_jobs.job(**changed), config or ManifestConfig()).problems
    return [problem for problem in found if problem.type is ProblemType.INVALID_TEMPLATE]


def merged(changed: dict[str, Any], config: ManifestConfig | None = None) -> dict[str, Any]:
    return pod_template(operator_jobs.context(config, **changed), Role.REPLICA)


@pytest.mark.parametrize("role", Role)
def test_our_own_pods_are_restricted(role: Role) -> None:
    template = pod_template(operator_jobs.context(), role)
    assert not violations(template, PodSecurity.RESTRICTED)


@pytest.mark.parametrize(
    "changed",
    [
        replicas(securityContext=None),
        replicas(securityContext={"runAsNonRoot": None}),
        replicas(securityContext={"seccompProfile": None}),
        ours(securityContext={"allowPrivilegeEscalation": None}),
        ours(securityContext={"capabilities": None}),
        ours(securityContext={"capabilities": {"drop": None}}),
        replicas(containers=[{"name": "other", "securityContext": None}]),
        replicas(initContainers=[{"name": "first", "securityContext": {"runAsUser": 0}}]),
        replicas(volumes=[{"name": "v", "nfs": {"server": "s", "path": "/"}}]),
    ],
)
def test_null_and_other_containers_get_nobody_beyond_the_level(changed: dict[str, Any]) -> None:
    (problem,) = problems(changed)
    assert problem.reason == "NotAllowed"
    assert "replica" in problem.message
    assert "podSecurity" in problem.message
    assert not problems(changed, BASELINE)


def test_a_container_that_says_nothing_of_its_rights_has_none() -> None:
    changed = replicas(containers=[{"name": "other"}], initContainers=[{"name": "first"}])
    assert not problems(changed)
    spec = merged(changed)["spec"]
    (first,) = spec["initContainers"]
    assert first["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_our_container_cannot_lose_its_rights_limits_by_null() -> None:
    spec = merged(ours(securityContext=None))["spec"]
    assert spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] is False


@pytest.mark.parametrize(
    "changed",
    [
        replicas(hostNetwork=True),
        replicas(volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
        ours(securityContext={"privileged": True, "allowPrivilegeEscalation": True}),
        replicas(nodeName="node-1"),
        replicas(priorityClassName="system-node-critical"),
    ],
)
def test_what_is_the_nodes_needs_the_privileged_level(changed: dict[str, Any]) -> None:
    assert problems(changed)
    assert problems(changed, BASELINE)
    assert not problems(changed, PRIVILEGED)


@pytest.mark.parametrize(
    "changed",
    [
        replicas(serviceAccountName="admin"),
        replicas(serviceAccount="admin"),
        replicas(automountServiceAccountToken=True),
        replicas(
            volumes=[{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"a": 1}}]}}]
        ),
        # In place of the pod's own for the operator.
        replicas(
            volumes=[
                {
                    "name": "identity",
                    "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]},
                }
            ]
        ),
        {"coordinator": {"template": {"spec": {"serviceAccountName": "admin"}}}},
    ],
)
def test_another_identity_needs_the_administrators_leave(changed: dict[str, Any]) -> None:
    for config in (ManifestConfig(), TEAM, PRIVILEGED):
        (problem,) = problems(changed, config)
        assert problem.reason == "NotAllowed"


@pytest.mark.parametrize(
    "changed",
    [
        replicas(serviceAccountName="team-bucket"),
        replicas(serviceAccountName="team-bucket", automountServiceAccountToken=True),
        {"coordinator": {"template": {"spec": {"serviceAccountName": "team-bucket"}}}},
        {"coordinator": {"template": {"spec": {"serviceAccountName": "disttrain-coordinator"}}}},
    ],
)
def test_an_account_that_matches_a_pattern_is_allowed(changed: dict[str, Any]) -> None:
    assert not problems(changed, TEAM)


@pytest.mark.parametrize("value", [None, False])
def test_no_token_is_mounted_that_nobody_asked_for(value: object) -> None:
    changed = replicas(automountServiceAccountToken=value)
    assert not problems(changed)
    assert merged(changed)["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (replicas(volumes=[{"name": {}}]), "spec.volumes[0].name must be plain"),
        (replicas(containers=[None]), "spec.containers[0] must be a mapping, got None"),
        (replicas(containers="x"), "spec.containers must be a list, got 'x'"),
        (ours(env=7), "spec.containers[0].env must be a list, got 7"),
        (ours(env=[None]), "spec.containers[0].env[0] must be a mapping"),
        (ours(resources={"limits": ["cpu"]}), "spec.containers[0].resources.limits"),
        (ours(resources="cpu"), "spec.containers[0].resources must be a mapping"),
        (ours(ports=[{"containerPort": [1]}]), "spec.containers[0].ports[0].containerPort"),
        (replicas(tolerations=[7]), "spec.tolerations[0] must be a mapping"),
        (replicas({"labels": [1]}), "metadata.labels must be a mapping"),
        (replicas({"annotations": {"a": 1}}), "metadata.annotations.a must be text"),
    ],
)
def test_an_odd_template_is_a_condition_that_names_the_field(
    changed: dict[str, Any], told: str
) -> None:
    (problem,) = problems(changed)
    assert told in problem.message


ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.just("disttrain"),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["name", "key", "limits", "cpu", "drop"]), inner, max_size=2
        )
    ),
    max_leaves=6,
)
CONTAINER_FIELDS = ["name", "env", "ports", "resources", "securityContext", "volumeMounts"]
POD_FIELDS = [
    "containers",
    "initContainers",
    "volumes",
    "tolerations",
    "securityContext",
    "serviceAccountName",
    "priorityClassName",
    "nodeName",
    "hostNetwork",
]
CONTEXT_FIELDS = [
    "capabilities",
    "seccompProfile",
    "seLinuxOptions",
    "procMount",
    "runAsNonRoot",
    "sysctls",
    "windowsOptions",
]
CONTEXTS = st.dictionaries(st.sampled_from(CONTEXT_FIELDS), ODD, max_size=3)
CONTAINERS = st.dictionaries(st.sampled_from(CONTAINER_FIELDS), ODD | CONTEXTS, max_size=3)
SPECS = st.dictionaries(
    st.sampled_from(POD_FIELDS), ODD | st.lists(CONTAINERS, max_size=2) | CONTEXTS, max_size=4
)
TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "spec": SPECS | ODD,
        "metadata": ODD | st.dictionaries(st.sampled_from(["labels", "annotations"]), ODD),
    },
)


@settings(max_examples=300, deadline=None)
@given(template=TEMPLATES, level=st.sampled_from(PodSecurity))
def test_a_look_at_any_template_makes_pods_within_the_level_or_tells_why_not(
    template: dict[str, Any], level: PodSecurity
) -> None:
    config = ManifestConfig(pod_security=level)
    job = operator_jobs.job(replicas={"count": 1, "template": template})
    planned = plan.make(Observed(job=job), Knowledge(job.uid), config, operator_jobs.NOW)
    created = [each for each in planned.actions if isinstance(each, Create)]
    told = planned.status and [each["type"] for each in planned.status["conditions"]]
    if not created:
        assert {"InvalidTemplate", "InvalidManifest"} & set(told or [])
    for each in created:
        pods = each.child.body.get("spec", {}).get("template")
        assert pods is None or not violations(pods, level)
