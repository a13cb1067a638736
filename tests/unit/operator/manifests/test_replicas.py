"""What keeps replicas of several processes, and what it says to their pods."""

from typing import Any

import pytest

from builders.operator_jobs import UID, context
from disttrain.job import cluster_labels
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests import access, children, stored
from disttrain_operator.manifests.children import Child
from disttrain_operator.manifests.context import Context, Scale
from disttrain_operator.manifests.stored import Objects

POD_INDEX = "metadata.labels['apps.kubernetes.io/pod-index']"
REPLICA_INDEX = "metadata.labels['disttrain.dev/replica-index']"


def divided(**replicas: Any) -> Context:
    return context(replicas={"count": 3, "partitions": 2, **replicas})


def sets(found: Context) -> list[Child]:
    """What keeps each of three replicas."""
    scale = Scale(shards=2, replicas=3, processes=2, coordinator=True)
    made = [
        children.of_replica(child, index)
        for child in children.children(found, scale)
        for _, index in children.keys(child, 3)
    ]
    return [
        children.at_scale(each, scale)
        for each in made
        if each.workload is not None and each.workload.role is Role.REPLICA
    ]


def test_each_rank_is_a_pod_with_the_gpu_that_the_template_asks_for() -> None:
    limits = {"nvidia.com/gpu": 1}
    container = {"name": "disttrain", "resources": {"limits": limits}}
    replicas = {"count": 3, "ranks": 2, "template": {"spec": {"containers": [container]}}}
    found = context(strategy={"localSteps": {}}, replicas=replicas)
    assert found.processes == 2
    for keeper in sets(found):
        made = keeper.body["spec"]
        assert made["replicas"] == 2
        (trains,) = made["template"]["spec"]["containers"]
        assert trains["resources"]["limits"]["nvidia.com/gpu"] == 1


def test_each_replica_is_a_stateful_set_of_as_many_pods_as_it_has_processes() -> None:
    made = sets(divided())

    assert [each.key for each in made] == [
        (Kind.StatefulSet, f"digits-replica-{index}") for index in range(3)
    ]
    for index, each in enumerate(made):
        spec = each.body["spec"]
        assert (spec["replicas"], spec["serviceName"]) == (2, "digits")
        assert spec["podManagementPolicy"] == "Parallel"
        assert spec["updateStrategy"] == {"type": "OnDelete"}
        own = {cluster_labels.REPLICA_INDEX: str(index), cluster_labels.JOB_UID: UID}
        for labels in (
            each.body["metadata"]["labels"],
            spec["selector"]["matchLabels"],
            spec["template"]["metadata"]["labels"],
        ):
            assert own.items() <= labels.items()


def test_a_grid_alone_says_how_many_pods_a_replica_has() -> None:
    found = context(parameterServer={}, replicas={"count": 3, "grid": "2x3"})
    assert (found.processes, found.job.spec.shards) == (6, 6)


def test_they_differ_in_nothing_but_name_and_label() -> None:
    first, *others = sets(divided())

    for each in others:
        index = each.body["metadata"]["labels"][cluster_labels.REPLICA_INDEX]
        text = str(first.body).replace("digits-replica-0", f"digits-replica-{index}")
        label = f"'{cluster_labels.REPLICA_INDEX}': "
        assert text.replace(f"{label}'0'", f"{label}'{index}'") == str(each.body)


def test_a_pod_learns_from_its_labels_which_process_of_which_replica_it_is() -> None:
    for each in sets(divided()):
        (container,) = each.body["spec"]["template"]["spec"]["containers"]
        fields = {
            variable["name"]: variable["valueFrom"]["fieldRef"]["fieldPath"]
            for variable in container["env"]
            if "valueFrom" in variable
        }
        assert fields["DISTTRAIN_INDEX"] == REPLICA_INDEX
        assert fields["DISTTRAIN_PARTITION"] == POD_INDEX


def test_the_coordinator_names_replicas_of_one_process() -> None:
    (only,) = sets(context())

    assert only.kind is Kind.ReplicaSet
    (container,) = only.body["spec"]["template"]["spec"]["containers"]
    assert {"DISTTRAIN_INDEX", "DISTTRAIN_PARTITION"}.isdisjoint(
        variable["name"] for variable in container["env"]
    )


def test_a_template_cannot_say_that_a_pod_is_of_another_replica() -> None:
    metadata = {"labels": {cluster_labels.REPLICA_INDEX: "7", "team": "a"}}

    for index, each in enumerate(sets(divided(template={"metadata": metadata}))):
        labels = each.body["spec"]["template"]["metadata"]["labels"]
        assert (labels[cluster_labels.REPLICA_INDEX], labels["team"]) == (str(index), "a")


def test_what_is_stored_does_not_grow_with_the_number_of_replicas() -> None:
    def stored_text(count: int) -> str:
        found = divided(count=count)
        made = children.children(found, Scale(shards=0, replicas=0, coordinator=True))
        return stored.pack(Objects(tuple(made), "launch"))

    assert stored_text(4096) == stored_text(1)
    found = stored.unpack(stored_text(1))
    assert found is not None
    assert not stored.is_strange(found, divided())


def test_replicas_of_the_job_alone_reach_each_other_at_any_port() -> None:
    policy = access.policy_between_processes(divided())

    assert policy is not None
    assert UID[:8] in policy["metadata"]["name"]
    assert policy["metadata"]["ownerReferences"]
    spec = policy["spec"]
    labels = sets(divided())[0].body["spec"]["template"]["metadata"]["labels"]
    assert spec["podSelector"]["matchLabels"].items() <= labels.items()
    assert spec["podSelector"]["matchLabels"][cluster_labels.JOB_UID] == UID
    assert spec["ingress"] == [{"from": [{"podSelector": spec["podSelector"]}]}]
    assert access.policy_between_processes(context()) is None


@pytest.mark.parametrize("index", [0, 2])
def test_the_scale_of_a_replica_is_all_of_its_processes_or_none(index: int) -> None:
    scale = Scale(shards=2, replicas=2, processes=4, coordinator=True)
    keeper = sets(divided())[index].workload

    assert keeper is not None
    assert scale.pods(keeper) == (4 if index < 2 else 0)
    assert Scale(shards=None, replicas=None, coordinator=False).pods(keeper) is None
