from datetime import timedelta
from typing import Any

from builders.operator_jobs import NOW, job, pod
from disttrain.job.names import Role
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.policies import starting


def waiting(**changed: Any) -> Any:
    return pod(
        Role.REPLICA, 1, phase="Pending", waiting="ContainerCreating", created=NOW, **changed
    )


def observed(*pods: Any) -> Observed:
    return Observed(job(), {}, {each.name: each for each in pods})


def test_a_pod_that_gets_no_volumes_makes_the_keys_worth_a_look() -> None:
    first = starting.keys_due_at(job(), observed(waiting(), pod(Role.SHARD)), None)
    assert first == NOW + starting.CREATING_PATIENCE

    checked = NOW + timedelta(minutes=5)
    again = starting.keys_due_at(job(), observed(waiting()), checked)
    assert again == checked + starting.CHECK_KEYS_AGAIN


def test_pods_that_run_or_have_no_node_do_not() -> None:
    running = pod(Role.SHARD, created=NOW)
    assert starting.keys_due_at(job(), observed(running), None) is None
    assert starting.keys_due_at(job(), observed(waiting(unschedulable=True)), None) is None
    new = pod(Role.REPLICA, 1, phase="Pending", created=NOW)
    assert starting.keys_due_at(job(), observed(new), None) is None
    assert starting.key_holders(job(), observed(new)) == ()
    assert starting.keys_due_at(job(), observed(waiting(gone_at=NOW)), None) is None


def test_those_who_run_hold_the_keys_of_before() -> None:
    seen = observed(
        waiting(),
        pod(Role.SHARD, 0),
        pod(Role.SHARD, 1, gone_at=NOW),
        pod(Role.COORDINATOR, phase="Succeeded"),
        pod(Role.REPLICA, 7, owner_uid="another"),
    )

    assert [each.name for each in starting.key_holders(job(), seen)] == ["digits-shard-0"]
