"""What an administrator's settings make of all jobs' objects."""

import json
from typing import Any

import pytest

from builders.operator_jobs import context, job
from disttrain.job.checkpoint import WhenDeleted
from disttrain.job.names import Role
from disttrain_operator.manifests import access, children, volume
from disttrain_operator.manifests.config import DefaultVolume, ManifestConfig, PodSecurity
from disttrain_operator.manifests.pod import pod_template
from disttrain_operator.reconcile import desired

ONCE = DefaultVolume(access_modes=("ReadWriteOnce",))
HOST = "kubernetes.io/hostname"


def defaults(**spec: Any) -> ManifestConfig:
    return ManifestConfig(
        pod_defaults=json.dumps({"metadata": {"labels": {"a": "b"}}, "spec": spec})
    )


def spec_of(config: ManifestConfig, role: Role = Role.REPLICA, **changed: Any) -> dict[str, Any]:
    found: dict[str, Any] = pod_template(context(config, **changed), role)["spec"]
    return found


@pytest.mark.parametrize("role", Role)
def test_defaults_are_under_all_pods(role: Role) -> None:
    config = defaults(tolerations=[{"key": "gpu"}], nodeSelector={"pool": "train"})
    template = pod_template(context(config), role)
    assert template["metadata"]["labels"]["a"] == "b"
    assert template["spec"]["nodeSelector"] == {"pool": "train"}
    assert {"key": "gpu"} in template["spec"]["tolerations"]


def test_a_jobs_template_is_merged_into_the_defaults() -> None:
    sized = [{"name": "temporary", "emptyDir": {"sizeLimit": "1Gi"}}]
    config = defaults(nodeSelector={"pool": "train"}, volumes=sized)
    template = {"spec": {"nodeSelector": {"pool": "big", "zone": "a"}}}
    spec = spec_of(config, replicas={"count": 1, "template": template})
    assert spec["nodeSelector"] == {"pool": "big", "zone": "a"}
    (temporary,) = (each for each in spec["volumes"] if each["name"] == "temporary")
    assert temporary["emptyDir"] == {"sizeLimit": "1Gi"}


@pytest.mark.parametrize(
    "config",
    [
        defaults(hostNetwork=True),
        defaults(securityContext={"runAsNonRoot": None}),
        ManifestConfig(pod_security_context="{}"),
    ],
)
def test_defaults_are_never_weaker_than_the_level(config: ManifestConfig) -> None:
    (problem, *_) = desired.of(job(), config).problems
    assert "level restricted" in problem.message


def test_the_cluster_may_choose_the_user() -> None:
    chosen = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    config = ManifestConfig(pod_security_context=json.dumps(chosen))
    found = spec_of(config)["securityContext"]
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & found.keys()
    assert not desired.of(job(), config).problems


@pytest.mark.parametrize("role", Role)
def test_pods_with_a_volume_for_one_node_are_on_one(role: Role) -> None:
    affinity = spec_of(ManifestConfig(default_volume=ONCE), role)["affinity"]["podAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == HOST
    labels = pod_template(context(), role)["metadata"]["labels"]
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize(
    ("default", "checkpoint"),
    [
        (DefaultVolume(), {}),
        (ONCE, {"uri": "s3://bucket/jobs"}),
        (ONCE, {"volume": {"claimName": "shared"}}),
        (ONCE, {"volume": {"size": "1Gi", "accessModes": ["ReadWriteMany"]}}),
    ],
)
def test_other_pods_may_be_anywhere(default: DefaultVolume, checkpoint: dict[str, Any]) -> None:
    spec = spec_of(ManifestConfig(default_volume=default), checkpoint=checkpoint)
    assert "affinity" not in spec


def test_a_drain_takes_pods_that_share_a_node_together() -> None:
    apart, together = context(), context(ManifestConfig(default_volume=ONCE))
    budgets = [children.shard_budget(each) for each in (apart, together)]
    assert [each and each["spec"]["maxUnavailable"] for each in budgets] == [1, "100%"]


@pytest.mark.parametrize(
    ("default", "given", "owned"),
    [
        (DefaultVolume(), None, False),
        (DefaultVolume(when_deleted=WhenDeleted.DELETE), None, True),
        (DefaultVolume(when_deleted=WhenDeleted.DELETE), {"size": "1Gi"}, True),
        (DefaultVolume(), {"size": "1Gi", "retentionPolicy": {"whenDeleted": "Delete"}}, True),
        (
            DefaultVolume(when_deleted=WhenDeleted.DELETE),
            {"size": "1Gi", "retentionPolicy": {"whenDeleted": "Retain"}},
            False,
        ),
    ],
)
def test_a_claim_goes_with_its_job_where_that_is_wanted(
    default: DefaultVolume, given: dict[str, Any] | None, *, owned: bool
) -> None:
    made = volume.claim(
        context(ManifestConfig(default_volume=default), checkpoint={"volume": given})
    )
    assert made is not None
    assert ("ownerReferences" in made["metadata"]) is owned


def test_metrics_are_for_those_who_may_scrape() -> None:
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    config = ManifestConfig(metrics_from=json.dumps(peers))
    _, everybody = access.network_policy("here", ManifestConfig())["spec"]["ingress"]
    _, scrapers = access.network_policy("here", config)["spec"]["ingress"]
    assert "from" not in everybody
    assert scrapers["from"] == peers


def test_a_privileged_default_needs_the_privileged_level() -> None:
    config = defaults(hostNetwork=True)
    allowed = ManifestConfig(pod_defaults=config.pod_defaults, pod_security=PodSecurity.PRIVILEGED)
    assert desired.of(job(), config).problems
    assert not desired.of(job(), allowed).problems
