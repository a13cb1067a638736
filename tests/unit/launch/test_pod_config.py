"""What a process in a pod is told, from its environment and the manifest."""

from dataclasses import replace
from pathlib import Path

import pytest

from builders.jobs import a_job
from disttrain.job.names import Role
from disttrain.job.pod_layout import Variable
from disttrain.launch import pod_config
from disttrain.launch.config import ClusterAccess, LaunchConfig
from disttrain.launch.errors import InvalidLaunchConfig
from disttrain.transport.config import TransportKind

IN_A_POD = {
    Variable.POD_NAME: "digits-x",
    Variable.POD_NAMESPACE: "team",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "KUBERNETES_SERVICE_PORT": "443",
}


def told(role: Role, uid: str | None = "u-1", **more: str) -> LaunchConfig:
    named = {
        Variable[key].value: value for key, value in more.items() if key in Variable.__members__
    }
    others = {key: value for key, value in more.items() if key not in Variable.__members__}
    environment = pod_config.read({**IN_A_POD, Variable.ROLE: role.value, **named, **others})
    job = a_job(
        "spec.parameterServer.shards=2", f"spec.replicas.partitions={more.pop('partitions', 1)}"
    )
    metadata = job.metadata.model_copy(update={"uid": uid, "namespace": "team"})
    return pod_config.make(environment, job.model_copy(update={"metadata": metadata}), None, 6)


def test_a_shard_announces_its_own_host_and_listens_everywhere() -> None:
    config = told(Role.SHARD, INDEX="1")
    assert config.listen_address == "tcp://*:7071"
    assert config.announce_address == "tcp://digits-shard-1.digits.team.svc:7071"
    assert config.coordinator_address == "tcp://digits-coordinator-0.digits.team.svc:7070"
    assert config.transport is TransportKind.TCP
    assert config.process == "shard-1"
    assert config.metrics_address == "0.0.0.0:9090"
    assert config.run_folder == Path("/checkpoints/digits-u-1")
    assert config.task_folder == Path("/task")
    assert config.cluster is None


def test_a_replica_has_a_place_and_no_index() -> None:
    config = told(Role.REPLICA)
    assert (config.index, config.place, config.process) == (None, "digits-x", "replica")
    assert config.listen_address is None


def test_a_member_of_several_is_told_its_group_and_its_partition() -> None:
    config = told(Role.REPLICA, partitions="2", INDEX="3", PARTITION="1")
    assert (config.index, config.partition, config.processes) == (3, 1, 2)
    assert (config.process, config.place) == ("replica-3-1", "digits-x")
    assert told(Role.REPLICA, partitions="2", INDEX="3").process == "replica-3-0"


@pytest.mark.parametrize(
    ("role", "more", "words"),
    [
        (
            Role.REPLICA,
            {"partitions": "2", "INDEX": "0", "PARTITION": "2"},
            "DISTTRAIN_PARTITION must be below 2",
        ),
        (
            Role.REPLICA,
            {"partitions": "1", "PARTITION": "1"},
            "DISTTRAIN_PARTITION must be below 1",
        ),
        (
            Role.SHARD,
            {"partitions": "2", "INDEX": "0", "PARTITION": "1"},
            "DISTTRAIN_PARTITION must be below 1",
        ),
        (
            Role.REPLICA,
            {"partitions": "2", "PARTITION": "1"},
            "DISTTRAIN_INDEX must be the index of the replica",
        ),
    ],
)
def test_a_member_that_cannot_be_is_refused(role: Role, more: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidLaunchConfig, match=words):
        told(role, **more)


def test_the_coordinator_knows_the_api_server() -> None:
    config = told(Role.COORDINATOR)
    assert config.listen_address == "tcp://*:7070"
    assert config.cluster == ClusterAccess(server="https://10.0.0.1:443")
    assert told(Role.COORDINATOR, KUBERNETES_SERVICE_HOST="fd00::1").cluster == ClusterAccess(
        server="https://[fd00::1]:443"
    )
    assert told(Role.COORDINATOR, KUBERNETES_SERVICE_HOST="").cluster is None


def test_addresses_can_be_given() -> None:
    config = told(
        Role.SHARD,
        INDEX="0",
        COORDINATOR_ADDRESS="tcp://h:1",
        LISTEN_ADDRESS="tcp://127.0.0.1:0",
        METRICS_ADDRESS="127.0.0.1:0",
    )
    assert config.coordinator_address == "tcp://h:1"
    assert config.listen_address == "tcp://127.0.0.1:0"
    assert config.announce_address is None, "who listens elsewhere is found there"
    assert config.metrics_address == "127.0.0.1:0"
    announced = told(Role.SHARD, INDEX="0", ANNOUNCE_ADDRESS="tcp://me:2").announce_address
    assert announced == "tcp://me:2"


@pytest.mark.parametrize(
    ("more", "threads"), [({}, 6), ({"OMP_NUM_THREADS": "3"}, 3), ({"OMP_NUM_THREADS": "0"}, 6)]
)
def test_a_replica_computes_with_what_its_pod_may_use(more: dict[str, str], threads: int) -> None:
    assert told(Role.REPLICA, **more).threads == threads
    assert told(Role.COORDINATOR, **more).threads == 1


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "DISTTRAIN_ROLE must be one of coordinator, shard, replica, got ''"),
        ({"DISTTRAIN_ROLE": "shard"}, "DISTTRAIN_INDEX must be the index of the shard"),
        ({"DISTTRAIN_ROLE": "shard", "DISTTRAIN_INDEX": "-1"}, "must be a whole number, got '-1'"),
    ],
)
def test_a_wrong_variable_is_named(variables: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidLaunchConfig) as raised:
        pod_config.read(variables)
    assert words in str(raised.value)


def test_a_manifest_without_a_uid_is_refused() -> None:
    with pytest.raises(InvalidLaunchConfig, match=r"metadata\.uid of .*job\.json is missing"):
        told(Role.REPLICA, uid=None)


def test_only_replicas_are_named_by_the_coordinator() -> None:
    with pytest.raises(ValueError, match="a shard must have an index"):
        replace(told(Role.SHARD, INDEX="0"), index=None)
