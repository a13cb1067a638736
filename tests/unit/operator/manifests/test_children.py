import json
from typing import Any

import pytest

from builders import operator_jobs
from builders.operator_jobs import UID, context
from disttrain.job import credentials, pod_layout
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests import access, launch_secret, volume
from disttrain_operator.manifests.children import children
from disttrain_operator.manifests.config import DefaultVolume, ManifestConfig
from disttrain_operator.manifests.context import Context, Scale
from disttrain_operator.manifests.pod import pod_template

SCALE = Scale(shards=2, replicas=3, coordinator=True)


def body(kind: Kind, found: Context | None = None, scale: Scale = SCALE) -> dict[str, Any]:
    made = children(found or context(), scale)
    return next(child.body for child in made if child.kind is kind)


def main(found: Context, role: Role) -> dict[str, Any]:
    containers = pod_template(found, role)["spec"]["containers"]
    return next(each for each in containers if each["name"] == "disttrain")


def variables(container: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


def test_all_but_the_claim_are_deleted_with_the_job() -> None:
    owned = {
        child.kind
        for child in children(context(), SCALE)
        if child.body["metadata"].get("ownerReferences")
    }

    assert owned == {child.kind for child in children(context(), SCALE)} - {
        Kind.PersistentVolumeClaim
    }


@pytest.mark.parametrize(
    ("member_timeout_seconds", "failures"), [(5.0, 3), (60.0, 6), (65.0, 7), (1e15, 8640)]
)
@pytest.mark.parametrize("role", list(Role))
def test_every_role_that_hangs_for_longer_than_a_member_is_missed_is_ended(
    role: Role, member_timeout_seconds: float, failures: int
) -> None:
    timeouts = {"leaseSeconds": 4, "memberTimeoutSeconds": member_timeout_seconds}
    probe = main(context(coordinator=timeouts), role)["livenessProbe"]

    assert probe["httpGet"] == {"path": "/healthz", "port": "metrics"}
    assert (probe["periodSeconds"], probe["failureThreshold"]) == (10, failures)


def test_the_coordinator_is_one_pod_never_two() -> None:
    spec = body(Kind.Job)["spec"]

    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 1, 1)
    assert spec["podReplacementPolicy"] == "Failed"
    assert spec["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert spec["template"]["spec"]["subdomain"] == "digits"


@pytest.mark.parametrize("role", list(Role))
def test_no_mesh_takes_the_pods_unless_a_template_wants_it(role: Role) -> None:
    metadata = pod_template(context(), role)["metadata"]
    assert metadata["labels"]["sidecar.istio.io/inject"] == "false"
    assert metadata["labels"]["istio.io/dataplane-mode"] == "none"
    assert metadata["annotations"]["linkerd.io/inject"] == "disabled"

    wanted = '{"metadata": {"labels": {"istio.io/dataplane-mode": "ambient"}}}'
    chosen = pod_template(context(ManifestConfig(pod_defaults=wanted)), role)["metadata"]
    assert chosen["labels"]["istio.io/dataplane-mode"] == "ambient"


def test_only_the_coordinator_has_a_token() -> None:
    found = context()
    given = {role: pod_template(found, role)["spec"] for role in Role}

    assert given[Role.COORDINATOR]["serviceAccountName"] == "disttrain-coordinator"
    assert [role for role in Role if given[role]["automountServiceAccountToken"]] == [
        Role.COORDINATOR
    ]


def test_a_coordinator_with_an_account_of_its_own_may_write_its_status() -> None:
    template = {"template": {"spec": {"serviceAccountName": "irsa"}}}
    config = ManifestConfig(allowed_service_accounts=("irsa",))
    own, usual = context(config, coordinator=template), context(config)

    binding = access.binding_of(own, body(Kind.Job, own))
    assert binding is not None
    assert [each["name"] for each in binding["subjects"]] == ["irsa"]
    assert binding["roleRef"]["name"] == "disttrain-coordinator"
    assert UID[:8] in binding["metadata"]["name"]
    assert binding["metadata"]["ownerReferences"]
    assert access.binding_of(usual, body(Kind.Job, usual)) is None


def test_a_single_shard_has_no_budget() -> None:
    single = context(parameterServer={"shards": 1})

    assert Kind.PodDisruptionBudget not in {child.kind for child in children(single, SCALE)}


@pytest.mark.parametrize("transport", ["tcp", {"encryption": "none"}])
def test_pods_look_for_credentials_where_they_encrypt_and_nowhere_else(transport: object) -> None:
    found = context(transport=transport)
    launch = launch_secret.launch_file(found)
    encrypts = transport == "tcp"
    assert launch_secret.needs_certificates_by(launch) is encrypts
    for role in Role:
        assert ("DISTTRAIN_KEYS_FILE" in variables(main(found, role))) is encrypts
        volumes = pod_template(found, role)["spec"]["volumes"]
        (secret,) = [each["secret"] for each in volumes if "secret" in each]
        assert len(secret["items"]) == 1 + encrypts
    files = launch_secret.secret(found, operator_jobs.trust(UID) if encrypts else None, launch)[
        "stringData"
    ]
    assert set(files) == {"job.json", *(["trust.json"] if encrypts else [])}


@pytest.mark.parametrize(
    "launch",
    ["", "{}", '{"spec": {}}', '{"spec": {"transport": "auto"}}', '{"spec": {"transport": {}}}'],
)
def test_processes_that_say_nothing_else_get_credentials(launch: str) -> None:
    assert launch_secret.needs_certificates_by(launch)


@pytest.mark.parametrize("role", list(Role))
def test_pods_satisfy_the_restricted_level(role: Role) -> None:
    spec = pod_template(context(), role)["spec"]

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in spec["containers"]:
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    # Every Service of the namespace would stand in the environment of every process.
    assert spec["enableServiceLinks"] is False


@pytest.mark.parametrize("role", list(Role))
def test_no_service_mesh_puts_itself_beside_a_process(role: Role) -> None:
    metadata = pod_template(context(), role)["metadata"]

    assert metadata["labels"]["sidecar.istio.io/inject"] == "false"
    assert metadata["annotations"]["linkerd.io/inject"] == "disabled"


def test_threads_follow_the_cpu_limit_and_only_that() -> None:
    def replica(limits: dict[str, str]) -> dict[str, Any]:
        resources = {"limits": limits}
        containers = [{"name": "disttrain", "resources": resources}]
        template = {"spec": {"containers": containers}}
        return main(context(replicas={"count": 1, "template": template}), Role.REPLICA)

    assert "OMP_NUM_THREADS" not in variables(replica({"memory": "1Gi"}))
    limit = variables(replica({"cpu": "2"}))["OMP_NUM_THREADS"]["resourceFieldRef"]
    assert limit["resource"] == "limits.cpu"


def test_a_shard_learns_its_index_from_its_pods_label() -> None:
    index = variables(main(context(), Role.SHARD))["DISTTRAIN_INDEX"]

    assert index == {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}


def test_a_template_cannot_take_away_what_services_find_pods_by() -> None:
    template = {
        "metadata": {"labels": {"disttrain.dev/job-uid": "mine", "team": "a"}},
        "spec": {"restartPolicy": "Never", "subdomain": "elsewhere"},
    }
    made = pod_template(context(coordinator={"template": template}), Role.COORDINATOR)

    assert made["metadata"]["labels"]["disttrain.dev/job-uid"] == UID
    assert made["metadata"]["labels"]["team"] == "a"
    assert made["spec"]["subdomain"] == "digits"
    assert made["spec"]["restartPolicy"] == "OnFailure"


@pytest.mark.parametrize(
    ("given", "keys", "seconds"),
    [
        (None, ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"], 30),
        (
            [{"key": "gpu", "operator": "Exists"}],
            ["gpu", "node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"],
            30,
        ),
        (
            [{"key": "node.kubernetes.io/unreachable", "tolerationSeconds": 600}],
            ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"],
            600,
        ),
        ([{"operator": "Exists"}], [None], None),
    ],
    ids=["none", "another", "its own patience", "all"],
)
def test_a_template_with_tolerations_still_leaves_lost_nodes(
    given: list[dict[str, Any]] | None, keys: list[str | None], seconds: int | None
) -> None:
    template = {} if given is None else {"template": {"spec": {"tolerations": given}}}
    found = context(replicas={"count": 1, **template})

    tolerations = pod_template(found, Role.REPLICA)["spec"]["tolerations"]
    assert [each.get("key") for each in tolerations] == keys
    lost = [each for each in tolerations if each.get("key") == "node.kubernetes.io/unreachable"]
    assert [each.get("tolerationSeconds") for each in lost] == (
        [] if seconds is None else [seconds]
    )


def test_the_task_comes_from_its_config_map() -> None:
    found = context(task={"entrypoint": "a:B", "source": {"configMap": "code"}})

    assert variables(main(found, Role.REPLICA))["DISTTRAIN_TASK_FOLDER"] == "/task"
    volumes = pod_template(found, Role.REPLICA)["spec"]["volumes"]
    assert {"name": "task", "configMap": {"name": "code"}} in volumes


@pytest.mark.parametrize(
    ("given", "default", "name", "size"),
    [
        (None, DefaultVolume(), "digits-checkpoints", "10Gi"),
        (None, None, None, None),
        ({"claimName": "shared"}, DefaultVolume(), "shared", None),
        ({"size": "5Gi"}, None, "digits-checkpoints", "5Gi"),
    ],
)
def test_checkpoints_have_a_place(
    given: dict[str, str] | None, default: DefaultVolume | None, name: str | None, size: str | None
) -> None:
    config = ManifestConfig(default_volume=default)
    found = context(config, checkpoint={"volume": given})

    assert volume.claim_name(found) == name
    made = volume.claim(found)
    assert (made and made["spec"]["resources"]["requests"]["storage"]) == size


def test_no_storage_class_is_not_the_clusters_default_one() -> None:
    for said in ({"storageClassName": ""}, {}):
        claim = volume.claim(context(checkpoint={"volume": {"size": "1Gi", **said}}))
        assert claim is not None
        classes = {key: value for key, value in claim["spec"].items() if key == "storageClassName"}
        assert classes == said


def test_checkpoints_in_an_object_store_need_no_claim_and_no_common_node() -> None:
    config = ManifestConfig(default_volume=DefaultVolume())
    found = context(config, checkpoint={"uri": "s3://bucket/jobs"})

    assert (volume.claim_name(found), volume.claim(found)) == (None, None)
    assert not volume.is_missing(found)
    assert Kind.PersistentVolumeClaim not in {child.kind for child in children(found, SCALE)}
    for role in Role:
        volumes = pod_template(found, role)["spec"]["volumes"]
        assert {"name": "checkpoints", "emptyDir": {}} in volumes
        mounts = main(found, role)["volumeMounts"]
        assert {"name": "checkpoints", "mountPath": "/checkpoints"} in mounts


def test_the_launch_config_says_who_and_what_but_not_how_to_run_pods() -> None:
    template = {"spec": {"nodeSelector": {"disk": "fast"}}}
    found = context(replicas={"count": 1, "template": template})
    manifest = json.loads(launch_secret.launch_file(found))

    assert manifest["metadata"] == {"name": "digits", "namespace": "here", "uid": UID}
    assert "template" not in manifest["spec"]["replicas"]
    assert "suspend" not in manifest["spec"]


def test_suspending_changes_no_object_but_the_scale() -> None:
    suspended, running = context(suspend=True), context(suspend=False)

    assert children(suspended, SCALE) == children(running, SCALE)
    assert launch_secret.launch_file(suspended) == launch_secret.launch_file(running)


def test_pods_are_told_of_whom_they_get_certificates_and_no_key_is_in_any_object() -> None:
    trust = operator_jobs.trust(UID)
    secret = launch_secret.secret(context(), trust, "{}")
    files = secret["stringData"]

    # A kubelet would go on showing it to new pods when there is another one of its name.
    assert "immutable" not in secret
    assert UID[:8] in secret["metadata"]["name"]
    assert set(files) == {pod_layout.LAUNCH_KEY, pod_layout.TRUST_KEY}
    assert credentials.parse(files[pod_layout.TRUST_KEY].encode()) == trust
    assert "PRIVATE KEY" not in str(secret)


@pytest.mark.parametrize("role", Role)
def test_a_pod_has_a_token_of_its_own_for_nobody_but_the_operator(role: Role) -> None:
    spec = pod_template(context(), role)["spec"]
    (token,) = [each for each in spec["volumes"] if "projected" in each]
    (source,) = token["projected"]["sources"]
    assert source["serviceAccountToken"] == {
        "audience": "disttrain.dev",
        "expirationSeconds": 3600,
        "path": "token",
    }
    container = spec["containers"][0]
    mounted = {each["name"]: each for each in container["volumeMounts"]}
    assert mounted[token["name"]]["mountPath"] == str(pod_layout.TOKEN_FOLDER)
    assert mounted[token["name"]]["readOnly"] is True
    told = {each["name"]: each for each in container["env"]}
    assert told["POD_UID"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert told["DISTTRAIN_KEYS_FILE"]["value"] == str(pod_layout.TRUST_FILE)
