"""Names on Kubernetes: those that documents promise, and short enough for its labels."""

from disttrain.job import cluster_names
from disttrain.job.cluster_names import Hosts
from disttrain.job.spec import LONGEST_NAME

LONGEST_REVISION = len("-0123456789")
"""What a StatefulSet appends to its name for the label controller-revision-hash."""
LONGEST_POD_SUFFIX = len("-0123456789-01234")


def test_names_of_a_job_on_kubernetes() -> None:
    assert cluster_names.service("digits") == "digits"
    assert cluster_names.shard_set("digits") == "digits-shard"
    assert cluster_names.replica_set("digits") == "digits-replica"
    assert cluster_names.replica_group_set("digits", 3) == "digits-replica-3"
    assert cluster_names.replica_policy("digits", "0f6a1b2c-3d4e") == "digits-replica-0f6a1b2c"
    assert cluster_names.coordinator_job("digits") == "digits-coordinator"
    assert cluster_names.launch_secret("digits", "0f6a1b2c-3d4e") == "digits-trust-0f6a1b2c"
    assert cluster_names.checkpoints_claim("digits") == "digits-checkpoints"


def test_hosts_are_those_of_the_headless_service() -> None:
    hosts = Hosts("digits", "team")
    assert hosts.coordinator == "digits-coordinator-0.digits.team.svc"
    assert hosts.shard(3) == "digits-shard-3.digits.team.svc"


def test_the_longest_name_leaves_room_for_what_controllers_append() -> None:
    job = "x" * LONGEST_NAME
    assert len(cluster_names.shard_set(job)) + LONGEST_REVISION <= 63
    assert len(cluster_names.replica_set(job)) + LONGEST_POD_SUFFIX <= 63 + 5
    assert cluster_names.LONGEST_SET + LONGEST_REVISION <= 63
    # Of a shorter name there are more.
    for name, largest in ((job, 999), (job[1:], 4095)):
        replica = cluster_names.replica_group_set(name, largest)
        assert len(replica) <= cluster_names.LONGEST_SET
        assert len(f"{replica}-1023") <= 63
    assert len(Hosts(job, "n").coordinator.split(".")[0]) <= 63
