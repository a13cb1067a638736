"""The chart: right in itself, installed, upgraded and removed on a real cluster."""

import json
import logging
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from builders import helm, product_images, schemas
from builders.pretended_training import PretendedTraining
from cluster import Kubectl, binaries, commands, namespaces
from cluster.errors import CommandFailed
from disttrain.job import cluster_names
from disttrain.job.checkpoint import WhenDeleted
from disttrain_generators import crd
from disttrain_monitoring import labels
from disttrain_operator import settings
from disttrain_operator.manifests.config import (
    DefaultVolume,
    ManifestConfig,
    PodSecurity,
)
from disttrain_operator.telemetry import logs

MONITORED: Final[dict[str, Any]] = {
    "serviceMonitor": {"enabled": True, "labels": {"release": "monitoring"}},
    "podMonitor": {"enabled": True, "labels": {"release": "monitoring"}},
    "prometheusRule": {
        "enabled": True,
        "labels": {"release": "monitoring"},
        "runbook": "https://example.com/alerts",
    },
    "dashboards": {
        "enabled": True,
        "namespace": "monitoring",
        "labels": {"grafana_dashboard": "yes"},
        "annotations": {"grafana_folder": "DistTrain"},
    },
}
EVERYTHING: Final[dict[str, Any]] = {
    "imagePrefix": "registry.example.com/team/",
    "image": {"repository": "operator", "digest": f"sha256:{'0' * 64}"},
    "imagePullSecrets": [{"name": "registry"}],
    "watchNamespaces": ["blue", "green"],
    "defaultCheckpointVolume": {
        "size": "",
        "storageClassName": "fast",
        "retentionPolicy": {"whenDeleted": "Delete"},
    },
    "podDefaults": {"metadata": {"labels": {"team": "blue"}}, "spec": {"nodeSelector": {"a": "b"}}},
    "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
    "crds": {"keep": False},
    "rbac": {"aggregateToUserRoles": False},
    "logLevel": "DEBUG",
    "logFormat": "json",
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "commonLabels": {"cost-center": "research"},
    "podSecurity": "baseline",
    "allowedServiceAccounts": ["team-*"],
    "serviceAccount": {"name": "other", "annotations": {"example.com/role": "trainer"}},
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "affinity": {"nodeAffinity": {}},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "podAnnotations": {"example.com/note": "yes"},
    "podLabels": {"team": "blue"},
    "metrics": MONITORED,
    "networkPolicy": {"enabled": False},
    "kueue": {"enabled": True},
}
ALL_VALUES: Final = {"defaults": {}, "everything": EVERYTHING}
CRD: Final = "disttrainjobs.disttrain.dev"
OF_PEOPLE: Final = ("disttrain-operator-jobs-view", "disttrain-operator-jobs-edit")
NOT_OURS: Final = {"managedBy": "example.com/nobody"}
"""No operator of ours touches such a job: only whether it is kept is asked then."""


@pytest.fixture(params=ALL_VALUES.values(), ids=list(ALL_VALUES))
def values(request: pytest.FixtureRequest, kubectl: Kubectl) -> dict[str, Any]:
    # kubectl: the cluster's fixture builds helm, or says why it cannot.
    found: dict[str, Any] = request.param
    return found


def test_helm_finds_nothing_to_say(values: dict[str, Any]) -> None:
    helm.lint(values)


def test_every_object_is_as_the_api_server_wants_it(
    values: dict[str, Any], kubectl: Kubectl, tmp_path: Path
) -> None:
    kinds = {found["kind"] for found in helm.rendered(values)}
    location = schemas.write(kubectl, tmp_path, kinds)
    # Of the Prometheus operator's kinds this server knows nothing.
    schemas.write_monitoring(tmp_path)
    manifests = tmp_path / "manifests.yaml"
    manifests.write_text(helm.template(values))

    how = ("-strict", "-summary")
    printed = commands.run(
        binaries.path("kubeconform"), *how, f"-schema-location={location}", manifests
    )

    assert "Invalid: 0, Errors: 0, Skipped: 0" in printed
    assert (kinds >= set(schemas.MONITORED)) == ("metrics" in values)


def test_dashboards_and_alerts_are_what_was_generated(kubectl: Kubectl) -> None:
    found = {each["kind"]: each for each in helm.rendered({"metrics": MONITORED})}

    boards = found["ConfigMap"]
    files = {f"disttrain-{file.name}": file for file in (helm.CHART / "dashboards").iterdir()}
    assert boards["data"] == {name: file.read_text() for name, file in files.items()}
    assert boards["metadata"]["namespace"] == "monitoring"
    assert boards["metadata"]["labels"]["grafana_dashboard"] == "yes"
    text = (helm.CHART / "alerts" / "rules.yaml").read_text()
    expected = yaml.safe_load(text.replace("docs/alerts.md", "https://example.com/alerts"))
    assert found["PrometheusRule"]["spec"] == expected
    rules = expected["groups"][0]["rules"]
    assert all(
        rule["annotations"]["runbook_url"].startswith("https://example.com/alerts#")
        for rule in rules
    )


def test_alerts_without_a_page_have_no_link(kubectl: Kubectl) -> None:
    monitored = {**MONITORED, "prometheusRule": {"enabled": True}}
    found = {each["kind"]: each for each in helm.rendered({"metrics": monitored})}

    rules = found["PrometheusRule"]["spec"]["groups"][0]["rules"]
    assert rules
    assert all(set(rule["annotations"]) == {"summary", "description"} for rule in rules)


def test_monitors_give_the_labels_that_dashboards_ask_for(kubectl: Kubectl) -> None:
    found = {each["kind"]: each for each in helm.rendered({"metrics": MONITORED})}

    pods = found["PodMonitor"]["spec"]
    assert (pods["sampleLimit"], pods["bodySizeLimit"]) == (5000, "4MB")
    (jobs,) = pods["podMetricsEndpoints"]
    given = {each["targetLabel"] for each in jobs["relabelings"]}
    # The Prometheus operator itself gives the others.
    assert given == set(labels.ALL) - {labels.NAMESPACE, labels.POD}
    (operator,) = found["ServiceMonitor"]["spec"]["endpoints"]
    assert operator["relabelings"] == [{"targetLabel": labels.COMPONENT, "replacement": "operator"}]


@pytest.mark.parametrize(
    "wrong",
    [
        {"watchNamespace": ["typo"]},
        {"crds": None},
        {"metrics": {"podMonitor": None}},
        {"imagePrefix": "no-slash-at-the-end"},
        {"podSecurity": "none"},
        {"allowedServiceAccounts": ["Team"]},
        {"image": {"repository": "operator", "digest": "latest"}},
        {"metrics": {"prometheusRule": {"enabled": True, "minutes": 5}}},
        {"metrics": {"dashboards": {"labels": {"grafana_dashboard": 1}}}},
    ],
)
def test_wrong_values_are_refused(wrong: dict[str, Any], kubectl: Kubectl) -> None:
    with pytest.raises(CommandFailed, match="don't meet the specifications of the schema"):
        helm.template(wrong)


def test_common_labels_are_on_every_object(kubectl: Kubectl) -> None:
    found = helm.rendered({**EVERYTHING, "commonLabels": {"team": "platform"}})

    without = [each["metadata"] for each in found if "team" not in each["metadata"]["labels"]]
    assert not without


def of_the_operator(values: dict[str, Any]) -> list[dict[str, Any]]:
    """What the chart installs without the program that speaks to Kueue."""
    return helm.rendered({**values, "kueue": {"enabled": False}})


@pytest.mark.usefixtures("kubectl")
def test_the_program_that_speaks_to_kueue_may_do_no_more_than_that() -> None:
    names = {each["metadata"]["name"] for each in of_the_operator(EVERYTHING)}
    added = [x for x in helm.rendered(EVERYTHING) if x["metadata"]["name"] not in names]
    rules = [rule for each in added for rule in each.get("rules", [])]
    words = {word for rule in rules for key in ("apiGroups", "verbs") for word in rule[key]}

    assert not words & {"*", "escalate", "bind", "impersonate"}
    deletable = {word for rule in rules if "delete" in rule["verbs"] for word in rule["resources"]}
    assert deletable == {"workloads"}
    assert not any("secrets" in rule["resources"] for rule in rules)


def test_the_operator_may_not_extend_its_own_rights(values: dict[str, Any]) -> None:
    rules = [rule for found in of_the_operator(values) for rule in found.get("rules", [])]

    assert rules
    words = {
        word for rule in rules for key in ("apiGroups", "resources", "verbs") for word in rule[key]
    }
    assert not words & {"*", "escalate", "bind", "impersonate"}
    of_secrets = [rule for rule in rules if "secrets" in rule["resources"]]
    read = [rule for rule in of_secrets if rule["verbs"] != ["create"]]
    # Its own one.
    assert [(rule["verbs"], rule["resourceNames"]) for rule in read] == [
        (["get"], ["disttrain-operator-authority"])
    ]
    deletable = {word for rule in rules if "delete" in rule["verbs"] for word in rule["resources"]}
    assert deletable == {"disttrainjobs", "jobs", "pods", "replicasets", "statefulsets"}


def test_given_namespaces_need_one_right_on_the_cluster(kubectl: Kubectl) -> None:
    found = of_the_operator(EVERYTHING)

    cluster = {each["metadata"]["name"]: each for each in found if each["kind"] == "ClusterRole"}
    # The first is for coordinators, and gives nobody anything by itself.
    tokens = "disttrain-operator-tokens-disttrain-system"
    assert list(cluster) == [cluster_names.COORDINATOR_ACCOUNT, tokens]
    (rule,) = cluster[tokens]["rules"]
    assert (rule["resources"], rule["verbs"]) == (["tokenreviews"], ["create"])
    roles = [each["metadata"]["namespace"] for each in found if each["kind"] == "Role"]
    assert roles == ["blue", "green", "disttrain-system"]


def container_of(values: dict[str, Any]) -> dict[str, Any]:
    (deployment,) = (each for each in of_the_operator(values) if each["kind"] == "Deployment")
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each.get("value") for each in found["env"]}


def test_pods_reach_what_signs_by_the_name_that_they_are_told(values: dict[str, Any]) -> None:
    found = helm.rendered(values)
    signing = settings.read(container_of(values)).signing
    services = {each["metadata"]["name"]: each for each in found if each["kind"] == "Service"}
    name, namespace, _ = signing.host.split(".")
    (port,) = services[name]["spec"]["ports"]
    assert (port["port"], namespace) == (signing.port, "disttrain-system")
    policies = [each for each in found if each["kind"] == "NetworkPolicy"]
    let_in = [
        port["port"]
        for each in policies
        for rule in each["spec"]["ingress"]
        for port in rule["ports"]
    ]
    assert let_in in ([], ["metrics", "signing"])


def test_what_the_chart_says_is_what_the_operator_reads(values: dict[str, Any]) -> None:
    found = settings.read(container_of(values))
    assert found.manifests.pod_security == values.get("podSecurity", "restricted")
    assert json.loads(found.manifests.pod_defaults) == values.get("podDefaults", {})
    chosen = json.loads(found.manifests.pod_security_context)
    assert ("runAsUser" in chosen) is ("podSecurityContext" not in values)


def test_the_chart_chooses_the_operators_log(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(logging, "basicConfig", lambda **found: given.update(found))

    found = settings.read(container_of(values))
    logs.configure(found.log_level, found.log_format)

    (handler,) = given["handlers"]
    assert given["level"] == values.get("logLevel", "INFO")
    is_json = isinstance(handler.formatter, logs.JsonLines)
    assert is_json == (values.get("logFormat", "text") == "json")


def test_every_setting_of_the_operator_can_be_chosen_in_the_chart(kubectl: Kubectl) -> None:
    peers = [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]
    volume = {"size": "3Gi", "storageClassName": "fast", "accessModes": ["ReadWriteOnce"]}
    chosen = EVERYTHING | {
        "runtimeImage": {"repository": "runtime", "tag": "7", "pullPolicy": "Always"},
        "defaultCheckpointVolume": volume | {"retentionPolicy": {"whenDeleted": "Delete"}},
        "managedBy": "example.com/disttrain",
        "forceDeleteLostPods": False,
        "metrics": MONITORED | {"allowedFrom": peers},
    }

    found = settings.read(container_of(chosen))

    assert found.namespaces == ("blue", "green")
    assert found.manifests == ManifestConfig(
        image="registry.example.com/team/runtime:7",
        image_pull_policy="Always",
        image_pull_secrets=("registry",),
        default_volume=DefaultVolume(
            size="3Gi",
            storage_class="fast",
            access_modes=("ReadWriteOnce",),
            when_deleted=WhenDeleted.DELETE,
        ),
        pod_security=PodSecurity.BASELINE,
        pod_security_context=compact(
            {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        ),
        pod_defaults=compact(EVERYTHING["podDefaults"]),
        metrics_from=compact(peers),
        allowed_service_accounts=("team-*",),
        manager="example.com/disttrain",
        removes_lost_pods=False,
    )
    default = ManifestConfig()
    names = [each.name for each in fields(ManifestConfig)]
    unheld = [name for name in names if getattr(found.manifests, name) == getattr(default, name)]
    assert unheld == [], "this test says of none of them what it is by default"


def compact(value: object) -> str:
    """As the chart writes JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def test_who_may_view_or_edit_a_namespace_may_so_with_jobs(kubectl: Kubectl) -> None:
    found = {each["metadata"]["name"]: each for each in helm.rendered({})}
    view, edit = (found[name] for name in OF_PEOPLE)
    kept = {"helm.sh/resource-policy": "keep"}
    assert (view["metadata"]["annotations"], edit["metadata"]["annotations"]) == (kept, kept)
    to = "rbac.authorization.k8s.io/aggregate-to-"
    assert view["metadata"]["labels"][f"{to}view"] == "true"
    assert {edit["metadata"]["labels"][f"{to}{role}"] for role in ("edit", "admin")} == {"true"}
    assert {verb for rule in view["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}


def test_what_an_administrator_brings_is_left_out(kubectl: Kubectl) -> None:
    without = {
        "crds": {"enabled": False},
        "rbac": {"create": False, "aggregateToUserRoles": False},
        "serviceAccount": {"create": False, "name": "given"},
    }
    found = helm.rendered(without)
    assert not {each["kind"] for each in found} & {
        "CustomResourceDefinition",
        "ClusterRole",
        "ClusterRoleBinding",
        "ServiceAccount",
    }
    (deployment,) = (each for each in found if each["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == "given"


@pytest.mark.landing
def test_jobs_outlive_an_upgrade_and_the_removal_of_the_operator(
    operator: str, namespace: Kubectl
) -> None:
    namespace.apply(job("kept", **NOT_OURS))
    identity = namespace.get("disttrainjob", "kept")["metadata"]["uid"]
    helm.test(namespace, operator)

    helm.upgrade(namespace, operator, {**helm.only_in(namespace), "podLabels": {"upgraded": "yes"}})
    running = namespace.items("pods", "upgraded=yes")
    assert [pod["status"]["phase"] for pod in running] == ["Running"]

    helm.uninstall(namespace, operator)
    assert namespace.items("deployments") == []
    assert namespace.items("roles") == []
    assert namespace.get("crd", CRD)["metadata"]["name"] == CRD
    assert all(namespace.get("clusterrole", name) for name in OF_PEOPLE)
    assert namespace.get("disttrainjob", "kept")["metadata"]["uid"] == identity

    helm.upgrade(namespace, operator, helm.only_in(namespace))
    assert namespace.get("disttrainjob", "kept")["metadata"]["uid"] == identity


@pytest.mark.nightly
@pytest.mark.usefixtures("operator_image", "small_image")
def test_installed_again_elsewhere_an_operator_goes_on_with_the_jobs_that_are_there(
    namespace: Kubectl,
) -> None:
    helm.upgrade(namespace, "disttrain", helm.only_in(namespace))
    kept = PretendedTraining(namespace, "kept")
    kept.start()
    kept.patch(suspend=True)
    kept.wait_for_phase("Suspended")
    helm.uninstall(namespace, "disttrain")

    elsewhere = namespaces.make(namespace, f"{namespace.namespace}-elsewhere")
    helm.upgrade(elsewhere, "disttrain", helm.only_in(namespace))
    kept.patch(suspend=False)
    kept.wait_until(lambda: len(kept.pods()) == 5, "all pods are back")
    kept.finish()

    kept.wait_for_phase("Complete")
    kept.delete()
    helm.uninstall(elsewhere, "disttrain")
    namespaces.remove(elsewhere, elsewhere.namespace)


@pytest.mark.landing
@pytest.mark.usefixtures("operator_image", "small_image")
def test_who_has_a_namespace_alone_installs_there_what_an_administrator_prepared(
    namespace: Kubectl,
) -> None:
    """As docs/kubernetes.md says it for those without rights on the cluster."""
    values = helm.only_in(namespace)
    owner = "owner"
    namespace.run("create", "rolebinding", owner, "--clusterrole=admin", f"--user={owner}")
    files = ("coordinators.yaml", "user_roles.yaml", "rbac.yaml")
    namespace.apply(crd.definition(), *helm.rendered(values, namespace.namespace, files))
    without = {"create": False, "aggregateToUserRoles": False}

    install = values | {"crds": {"enabled": False}, "rbac": without}
    helm.upgrade(namespace, "disttrain", install, user=owner)

    job = PretendedTraining(namespace, "owned")
    job.start()
    job.finish()
    job.wait_for_phase("Complete")
    job.delete()
    helm.uninstall(namespace, "disttrain", user=owner)
    with_roles = install | {"rbac": without | {"create": True}}
    with pytest.raises(CommandFailed, match="is forbidden"):
        helm.upgrade(namespace, "other", with_roles, user=owner)


@pytest.mark.landing
def test_what_the_clusters_roles_allow_is_allowed_with_jobs(
    operator: str, namespace: Kubectl
) -> None:
    roles = ("view", "edit", "admin")
    for role in roles:
        namespace.run("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}")

    def may(role: str, verb: str, part: str = "") -> bool:
        what = ("disttrainjobs.disttrain.dev", f"--subresource={part}", f"--as={role}")
        return commands.succeeds(*namespace.command("auth", "can-i", verb, *what))

    # What is added to them takes its controller a moment.
    commands.wait_until(lambda: may("view", "list") and may("edit", "create"), "jobs are added")
    commands.wait_until(lambda: may("admin", "create"), "jobs are added for administrators, too")
    assert all(may(role, "get", part) for role in roles for part in ("", "status", "scale"))
    writes = [("create", ""), ("patch", ""), ("delete", ""), ("patch", "scale")]
    assert not [write for write in writes if may("view", *write)]
    assert all(may(role, *write) for role in ("edit", "admin") for write in writes)
    # What happened is for the operator and coordinators to say.
    assert not [role for role in roles if may(role, "patch", "status")]


@pytest.mark.alone
@pytest.mark.landing
def test_without_namespaces_the_operator_runs_the_jobs_of_all(
    request: pytest.FixtureRequest, operator_image: str, namespace: Kubectl
) -> None:
    if request.config.getoption("--cluster") == "existing":
        pytest.skip("it would run the jobs of other people's tests, too")
    elsewhere = namespaces.make(namespace, f"{namespace.namespace}-jobs")
    helm.upgrade(namespace, "disttrain", {"imagePrefix": product_images.PREFIX})

    elsewhere.apply(job("waiting", suspend=True))

    elsewhere.wait_until("Suspended", "disttrainjob/waiting")
    helm.uninstall(namespace, "disttrain")
    namespaces.remove(elsewhere, elsewhere.namespace)


def job(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "disttrain.dev/v1alpha1",
        "kind": "DistTrainJob",
        "metadata": {"name": name},
        "spec": {
            "task": {"entrypoint": "digits:Digits"},
            "strategy": {"downpour": {"optimizer": {"sgd": {"learningRate": 0.1}}}},
            "batchSize": 32,
            "stop": {"epochs": 1},
            "parameterServer": {"shards": 1},
            "replicas": {"count": 1},
            **spec,
        },
    }
