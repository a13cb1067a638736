"""A job of 2,000 replicas: what is kept and written of it stays small."""

from dataclasses import replace
from datetime import timedelta

from builders.operator_jobs import NOW, UID, job, pod
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import Death
from disttrain_operator.reconcile import plan
from disttrain_operator.reconcile.actions import Annotate, Create, Knowledge

REPLICAS = 2000
LONGEST_ANNOTATION = 100_000
"""All annotations of an object share 256 KiB."""
LONGEST_STATUS = 32_000


def test_all_its_replicas_are_one_replica_set() -> None:
    found = plan.make(
        Observed(job(replicas={"count": REPLICAS})), Knowledge(UID), ManifestConfig(), NOW
    )

    made = [action.child for action in found.actions if isinstance(action, Create)]
    (replicas,) = [child for child in made if child.kind is Kind.ReplicaSet]
    assert replicas.body["spec"]["replicas"] == REPLICAS


def test_all_its_replicas_may_fail_and_little_is_written() -> None:
    death = Death(exit_code=1, reason="Error", message="x" * 300, time=NOW)
    failed = pod(Role.REPLICA, restarts=3, death=death, waiting="CrashLoopBackOff", detail="again")
    pods = {
        f"digits-replica-{index}": replace(
            failed, name=f"digits-replica-{index}", uid=f"{index:08d}-uid"
        )
        for index in range(REPLICAS)
    }
    policy = {"maxRestarts": {"replica": 100_000}}
    record = job({}, replicas={"count": REPLICAS}, failurePolicy=policy)

    now = NOW + timedelta(seconds=1)
    found = plan.make(Observed(record, {}, pods), Knowledge(UID), ManifestConfig(), now)

    (noted,) = [action for action in found.actions if isinstance(action, Annotate)]
    assert len(noted.value) < LONGEST_ANNOTATION
    assert found.status is not None
    assert found.status["restarts"]["replica"] == 3 * REPLICAS
    assert len(found.status["failures"]) == 10
    assert len(str(found.status)) < LONGEST_STATUS
