"""What a plan does about processes that failed, and about words and keys that are gone."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from builders.operator_jobs import COMMON, NOW, UID, job, made_children, pod
from disttrain.job.failure_policy import FailureAction
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.observed.inventory import Inventory, Observed
from disttrain_operator.observed.records import (
    Death,
    EndPhase,
    JobRecord,
    Outcome,
    PodRecord,
)
from disttrain_operator.policies import outcome as outcome_policy
from disttrain_operator.policies import starting
from disttrain_operator.reconcile import plan
from disttrain_operator.reconcile.actions import Annotate, CreateKeys, Knowledge, Plan, RestartAll

CONFIG = ManifestConfig()
DEATH = Death(exit_code=7, reason="Error", message="", time=NOW, reasons=frozenset({"Error"}))
FAILED = pod(Role.REPLICA, 0, restarts=1, death=DEATH)
PODS = (pod(Role.COORDINATOR), pod(Role.SHARD, 0), pod(Role.SHARD, 1), FAILED)
COMPLETE = Outcome(phase=EndPhase.COMPLETE, reason="EpochsDone", message="1 epoch", time=NOW)
COORDINATORS_JOB = (Kind.Job, "digits-coordinator")


def rules(action: FailureAction) -> dict[str, Any]:
    return {"rules": [{"exitCodes": [7], "action": action.value}]}


def observed(record: JobRecord, *pods: PodRecord, **coordinator: Any) -> Observed:
    children = made_children(record, CONFIG)
    children[COORDINATORS_JOB] = replace(children[COORDINATORS_JOB], **coordinator)
    return Observed(record, children, {each.name: each for each in pods}, common=COMMON)


def made(seen: Observed, knowledge: Knowledge | None = None, seconds: float = 1) -> Plan:
    now = NOW + timedelta(seconds=seconds)
    return plan.make(seen, knowledge or Knowledge(UID), CONFIG, now)


def test_a_rule_starts_the_whole_job_again_once() -> None:
    policy = rules(FailureAction.RESTART_JOB_FROM_CHECKPOINT)

    found = made(observed(job(failurePolicy=policy), *PODS))

    restarted, noted = found.actions
    assert isinstance(restarted, RestartAll)
    assert restarted.pods == PODS
    assert "pod digits-replica-0 failed" in restarted.because
    assert "rules[0] (exit code 7" in restarted.because
    assert isinstance(noted, Annotate)
    known = job({"restarts": noted.value}, failurePolicy=policy)
    assert made(observed(known, *PODS)).actions == ()


def test_a_rule_fails_the_job() -> None:
    found = made(observed(job(failurePolicy=rules(FailureAction.FAIL_JOB)), *PODS))

    assert found.outcome is not None
    assert found.outcome.reason == "FailedByRule"
    names = [action.name for action in found.actions if isinstance(action, Annotate)]
    assert names == ["disttrain.dev/restarts"]


def test_a_failure_outside_the_budget_never_ends_the_job() -> None:
    policy = rules(FailureAction.RESTART_POD_IGNORING_BUDGET) | {"maxRestarts": {"replica": 0}}

    found = made(observed(job(failurePolicy=policy), *PODS))

    assert found.outcome is None
    assert found.status is not None
    assert found.status["restarts"]["replica"] == 1


def test_the_words_of_a_coordinator_whose_pod_is_gone_count() -> None:
    inventory = Inventory()
    record = job()
    inventory.put(record)
    last = pod(Role.COORDINATOR, phase="Succeeded", outcome=COMPLETE)
    inventory.put(last)

    inventory.drop(last)

    seen = observed(record, ended=EndPhase.COMPLETE)
    seen.decided = inventory.at(record.key).decided
    assert made(seen).outcome == COMPLETE
    assert not outcome_policy.is_guess(COMPLETE)


def test_an_end_of_which_nobody_knows_is_a_guess() -> None:
    found = made(observed(job(), ended=EndPhase.COMPLETE)).outcome

    assert found is not None
    assert found.reason == outcome_policy.UNKNOWN
    assert outcome_policy.is_guess(found)


def test_keys_are_looked_for_when_a_pod_gets_no_volumes() -> None:
    stuck = pod(Role.REPLICA, 5, phase="Pending", waiting="ContainerCreating", created=NOW)
    seen = observed(job(), PODS[1], stuck)
    seconds = starting.CREATING_PATIENCE.total_seconds()

    assert made(seen, seconds=seconds - 1).wake_at == NOW + starting.CREATING_PATIENCE
    (action,) = made(seen, seconds=seconds).actions
    assert isinstance(action, CreateKeys)
    assert action.pods == (PODS[1],)
    assert '"batchSize": 8' in action.launch
    knowledge = Knowledge(UID, keys_checked=NOW + starting.CREATING_PATIENCE)
    assert made(seen, knowledge, seconds=seconds).actions == ()


def test_an_eviction_is_told_and_charges_nobody() -> None:
    evicted = replace(
        FAILED,
        restarts=0,
        phase="Failed",
        disrupted=True,
        death=replace(DEATH, reason="Evicted", reasons=frozenset({"Evicted", "DisruptionTarget"})),
    )
    found = made(observed(job(failurePolicy={"maxRestarts": {"replica": 0}}), evicted))

    assert found.outcome is None
    assert found.status is not None
    assert found.status["failures"][0]["reason"] == "Evicted"
