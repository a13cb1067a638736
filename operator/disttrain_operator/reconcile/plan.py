"""What to do about a job, from what was seen of it. Pure: the reconciler's every decision."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from disttrain.job.cluster_names import MANAGED_BY_OPERATOR
from disttrain.job.names import Role
from disttrain_operator.kinds import SHARED, WORKLOADS
from disttrain_operator.manifests.children import Child
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.observed import parsing
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import JobRecord, Outcome, PodRecord
from disttrain_operator.policies import (
    authority,
    conditions,
    deadlines,
    missing_pods,
    problem,
    restarts,
    stages,
    starting,
)
from disttrain_operator.policies import outcome as outcome_policy
from disttrain_operator.policies.problem import Problem, first_of_each_type
from disttrain_operator.policies.stages import Stage
from disttrain_operator.reconcile import actions, desired, report, workloads
from disttrain_operator.reconcile.actions import Knowledge
from disttrain_operator.reconcile.desired import Desired

_CHECK_CONFLICT_AFTER = timedelta(seconds=5)
"""Whose name is taken looks again: what stands in the way may not be watched."""

_KUBELET_PATIENCE = timedelta(seconds=30)
"""A kubelet that lives needs less than this after a pod's grace period."""

_ASK_NODE_AGAIN = timedelta(minutes=1)
"""After which a node that answered is asked again."""

_WHY = {
    Stage.RUN: "the job's spec says so",
    Stage.STOP_COORDINATOR: "the job stops, its coordinator first",
    Stage.STOP_ALL: "the job is stopped",
    Stage.ENDED: "the job has ended",
}
"""Why workloads are scaled, in words for Events and the log."""


@dataclass(frozen=True, slots=True)
class _Basis:
    job: JobRecord
    observed: Observed
    knowledge: Knowledge
    wanted: Desired
    now: datetime
    config: ManifestConfig


def make(
    observed: Observed, knowledge: Knowledge, config: ManifestConfig, now: datetime
) -> actions.Plan:
    """The plan for one job; an empty one for what is not ours to touch."""
    job = observed.job
    if job is None or job.deleting:
        return actions.Plan()
    wanted = desired.of(job, config)
    if (wanted.spec.managed_by or MANAGED_BY_OPERATOR) != config.manager:
        return actions.Plan()
    return _planned(_Basis(job, observed, knowledge, wanted, now, config))


def _planned(basis: _Basis) -> actions.Plan:
    job, spec, observed, now = basis.job, basis.wanted.spec, basis.observed, basis.now
    members = {Role.SHARD: spec.shards, Role.REPLICA: spec.replicas.count}
    counted = restarts.count(job.restarts, observed.pods_of(job), spec.failure_policy, members)
    outcome = _outcome(basis, counted)
    stage = stages.decide(job, spec, observed, outcome)
    problems = _problems(basis, outcome)
    steps = [*_count(basis, outcome, counted), *_remove_lost(basis)]
    steps += _read_events(basis, outcome)
    wished = _change(basis, stage, problems)
    changes, beyond = _allowed_by_now(wished, observed, basis.config)
    if beyond is not None:
        problems = first_of_each_type((*problems, beyond))
    steps += _explained(changes, observed, stage, outcome)
    due = deadlines.deletion_due_at(outcome, spec.ttl_seconds_after_finished)
    if due is not None and due <= now:
        steps.append(actions.DeleteJob())
    told = conditions.Situation(
        job=job, observed=observed, spec=spec, stage=stage, outcome=outcome, problems=problems
    )
    return actions.Plan(
        actions=tuple(steps),
        status=report.status(told, counted, now),
        wake_at=_wake_at(basis, outcome, due, problems),
        outcome=outcome,
        warnings=basis.wanted.warnings,
    )


def _outcome(basis: _Basis, counted: restarts.Counted) -> Outcome | None:
    job, observed, now = basis.job, basis.observed, basis.now
    found = outcome_policy.found(job, observed, now)
    if found is None:
        found = deadlines.exceeded(basis.wanted.spec, _since(basis), now)
        if found is not None and (hindrances := _problems(basis, None)):
            found = replace(found, message=f"{found.message}; {hindrances[0].message}")
    return found or restarts.ended(counted, basis.wanted.spec.failure_policy, now)


def _since(basis: _Basis) -> deadlines.Since:
    job = basis.job
    if basis.wanted.spec.suspend:
        return deadlines.Since(started=None, waits=None)
    keeper = outcome_policy.coordinator_job(job, basis.observed)
    begun = report.has_begun(job)
    return deadlines.Since(
        # Kubernetes keeps it for us.
        started=None if keeper is None else keeper.started,
        waits=None if begun else conditions.resumed_at(job.status, basis.now) or job.created,
    )


def _problems(basis: _Basis, outcome: Outcome | None) -> tuple[Problem, ...]:
    if outcome is not None:
        return ()
    observed, knowledge = basis.observed, basis.knowledge
    # Names of their own that hold a uid are in nobody's way, and nobody watches them go.
    own = (child for child in observed.children.values() if child.kind not in SHARED)
    children = [*own, *knowledge.in_the_way]
    unmarked = workloads.unmarked(basis.job, observed)
    found = [
        *basis.wanted.problems,
        knowledge.refused,
        # Where nothing is made, no name is needed: a Deployment's ReplicaSet is not in the way.
        unmarked or problem.conflict(basis.job, children),
        *starting.problems(basis.job, observed, knowledge.lacks, basis.now),
        authority.problem(basis.job, _believed(basis), knowledge.signs_by),
        knowledge.error,
    ]
    return first_of_each_type(problem for problem in found if problem is not None)


def _count(
    basis: _Basis, outcome: Outcome | None, counted: restarts.Counted
) -> list[actions.Action]:
    job = basis.job
    found: list[actions.Action] = []
    if outcome is None and counted.why_restarts_all:
        # Before the failure counts as known: an operator that dies between does it again.
        pods = basis.observed.pods_of(job)
        going = [pod for pod in pods if pod.gone_at is None and not pod.over]
        found.append(actions.RestartAll(tuple(going), counted.why_restarts_all))
    if counted.annotation and counted.annotation != job.restarts:
        found.append(actions.Annotate(parsing.RESTARTS, counted.annotation))
    return found


def _remove_lost(basis: _Basis) -> list[actions.Action]:
    now = basis.now
    return [
        actions.RemovePod(pod, _lateness(pod, now)) for pod, at in _lost_pods(basis) if at <= now
    ]


def _lost_pods(basis: _Basis) -> list[tuple[PodRecord, datetime]]:
    """The pods that should be gone, and when to remove them by force if their node is lost.

    Their processes are fenced, should they still run.
    """
    if not basis.config.removes_lost_pods:
        return []
    found = []
    for pod in basis.observed.pods_of(basis.job):
        if pod.over or pod.gone_at is None:
            continue
        first, answered = pod.gone_at + _KUBELET_PATIENCE, basis.knowledge.answered.get(pod.node)
        found.append((pod, first if answered is None else max(first, answered + _ASK_NODE_AGAIN)))
    return found


def _read_events(basis: _Basis, outcome: Outcome | None) -> list[actions.Action]:
    if outcome is not None:
        return []
    own, known = basis.observed.children_of(basis.job), basis.knowledge.lacks
    uids = missing_pods.unexplained(own, known, basis.now)
    return [actions.ReadEvents(uids)] if uids else []


def _lateness(pod: PodRecord, now: datetime) -> str:
    seconds = 0.0 if pod.gone_at is None else (now - pod.gone_at).total_seconds()
    return f"it should have ended {seconds:.0f} s ago"


def _change(basis: _Basis, stage: Stage, problems: tuple[Problem, ...]) -> list[actions.Action]:
    scale = stages.scale(stage, basis.wanted.spec)
    context = basis.wanted.context
    if stage is not Stage.RUN:
        return workloads.stop(basis.job, basis.observed, scale)
    if context is None or any(each.type in problem.BLOCKING for each in problems):
        # Nothing is made, but what runs is still scaled.
        return workloads.stop(basis.job, basis.observed, scale)
    signs_by = basis.knowledge.signs_by
    target = workloads.Target(basis.job, context, basis.wanted.digest, scale, signs_by)
    changes = workloads.run(target, basis.observed, basis.observed.common)
    due = _keys_due_at(basis)
    if due is not None and due <= basis.now:
        changes += workloads.check_keys(target, basis.observed)
    unchecked = workloads.to_check(changes)
    if unchecked and basis.wanted.templates and not basis.knowledge.checked:
        return [actions.CheckTemplates(unchecked), *changes]
    return changes


def _keys_due_at(basis: _Basis) -> datetime | None:
    job, knowledge = basis.job, basis.knowledge
    if authority.is_another(_believed(basis), knowledge.signs_by):
        return authority.secret_due_at(knowledge.keys_checked, basis.now)
    return starting.keys_due_at(job, basis.observed, knowledge.keys_checked)


def _believed(basis: _Basis) -> str:
    return authority.believed(basis.job, basis.observed.children_of(basis.job, WORKLOADS))


def _explained(
    changes: list[actions.Action], observed: Observed, stage: Stage, outcome: Outcome | None
) -> list[actions.Action]:
    """Say of each change of scale why it is made, and whether an Event is made of it."""
    return [
        replace(
            action,
            because=action.because or _WHY[stage],
            outcome=outcome,
            is_recorded=_is_scaling(action, observed, stage),
        )
        if isinstance(action, actions.Rescale)
        else action
        for action in changes
    ]


def _is_scaling(action: actions.Rescale, observed: Observed, stage: Stage) -> bool:
    """Whether a part of a running job is scaled; it was not resumed as a whole."""
    seen = observed.children.get(action.child)
    return stage is Stage.RUN and seen is not None and seen.wanted > 0


def _wake_at(
    basis: _Basis, outcome: Outcome | None, due: datetime | None, problems: tuple[Problem, ...]
) -> datetime | None:
    job, now = basis.job, basis.now
    instants = [due, min((at for _, at in _lost_pods(basis)), default=None)]
    if outcome is None:
        instants.append(deadlines.next_instant(basis.wanted.spec, _since(basis)))
        instants.append(starting.next_instant(job, basis.observed, now))
        own = basis.observed.children_of(job)
        instants.append(missing_pods.next_instant(own, basis.knowledge.lacks))
        instants.append(_keys_due_at(basis))
    if any(each.type in problem.CONFLICTS for each in problems):
        instants.append(now + _CHECK_CONFLICT_AFTER)
    return min(
        (instant for instant in instants if instant is not None and instant > now), default=None
    )


def _allowed_by_now(
    changes: list[actions.Action], observed: Observed, config: ManifestConfig
) -> tuple[list[actions.Action], Problem | None]:
    """The changes; if their pods are beyond the limits, those that end pods alone, and why.

    What was stored with the job was maybe made when more was allowed.
    """
    found = (
        desired.refused(child.body["spec"]["template"], role, config)
        for (role, _), child in _makers(changes, observed).items()
    )
    refusal = next((each for each in found if each is not None), None)
    if refusal is None:
        return changes, None
    message = f"what was stored with the job is no longer allowed: {refusal.message}"
    ending = [each for each in changes if _only_ends(each, observed)]
    return ending, replace(refusal, message=message)


def _only_ends(change: actions.Action, observed: Observed) -> bool:
    if isinstance(change, actions.Rescale):
        return not _grows(change, observed)
    return isinstance(change, actions.Remove)


def _makers(changes: Iterable[actions.Action], observed: Observed) -> dict[tuple[Role, str], Child]:
    """What makes pods by the changes: of each role and each text, as replicas are alike in it."""
    found: dict[tuple[Role, str], Child] = {}
    for change in changes:
        if isinstance(change, actions.Create | actions.Renew) and change.child.workload is not None:
            found.setdefault((change.child.workload.role, ""), change.child)
        elif isinstance(change, actions.Rescale) and _grows(change, observed):
            text = observed.children[change.child].objects
            stored = desired.unpacked(text)
            role = observed.children[change.child].role
            for child in () if stored is None else stored.children:
                if child.workload is not None and child.workload.role is role:
                    found.setdefault((child.workload.role, text), child)
    return found


def _grows(change: actions.Rescale, observed: Observed) -> bool:
    seen = observed.children.get(change.child)
    return seen is not None and change.wanted > seen.wanted
