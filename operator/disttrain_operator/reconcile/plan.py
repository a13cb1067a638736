"""What to do about a job, from what was seen of it. Pure: the reconciler's every decision."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from disttrain.job import cluster_labels
from disttrain.job.cluster_names import MANAGED_BY_OPERATOR
from disttrain.job.spec import Spec
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.observed import outcomes, parsing
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import JobRecord, Outcome
from disttrain_operator.policies import (
    deadlines,
    key_checks,
    lost_pods,
    ownership,
    restarts,
    stages,
    starting,
    ttl,
)
from disttrain_operator.policies import outcome as outcome_policy
from disttrain_operator.policies.problem import Problem
from disttrain_operator.policies.stages import Stage
from disttrain_operator.reconcile import desired, report, workloads
from disttrain_operator.reconcile.actions import (
    Action,
    Annotate,
    CheckTemplates,
    DeleteJob,
    EndPod,
    Plan,
    RemovePod,
)
from disttrain_operator.reconcile.desired import Desired
from disttrain_operator.reconcile.knowledge import Knowledge

_CHECK_CONFLICT_AFTER = timedelta(seconds=5)
"""Whose name is taken looks again: what stands in the way may not be watched."""


@dataclass(frozen=True, slots=True)
class _Situation:
    job: JobRecord
    observed: Observed
    knowledge: Knowledge
    wanted: Desired
    now: datetime


def make(observed: Observed, knowledge: Knowledge, config: ManifestConfig, now: datetime) -> Plan:
    """The plan for one job; an empty one for what is not ours to touch."""
    job = observed.job
    if job is None or job.deleting:
        return Plan()
    wanted = desired.of(job, config)
    situation = _Situation(job, observed, knowledge, wanted, now)
    if wanted.context is None:
        return _invalid(situation)
    if wanted.context.job.spec.managed_by not in {None, MANAGED_BY_OPERATOR}:
        return Plan()
    return _valid(situation, wanted.context.job.spec)


def _invalid(situation: _Situation) -> Plan:
    """A manifest that the rules refuse: nothing runs, unless it ran before the rules grew."""
    problems = situation.wanted.problems
    status = report.refused(situation.job, problems, situation.now)
    return Plan(status=status, outcome=situation.job.outcome)


def _valid(situation: _Situation, spec: Spec) -> Plan:
    job, observed, now = situation.job, situation.observed, situation.now
    counted = restarts.count(job.restarts, observed.pods_of(job), spec.failure_policy)
    outcome = _outcome(situation, spec, counted)
    stage = stages.decide(job, spec, observed, outcome)
    problems = _problems(situation, outcome)
    actions = [*_record(situation, outcome, counted), *_remove_lost(situation)]
    actions += _change(situation, spec, stage, problems)
    due = ttl.due_at(outcome, spec.ttl_seconds_after_finished)
    if due is not None and due <= now:
        actions.append(DeleteJob())
    facts = report.Facts(job, observed, spec, stage, outcome, problems, counted)
    return Plan(
        actions=tuple(actions),
        status=report.status(facts, now),
        wake_at=_wake_at(situation, spec, outcome, due, problems),
        outcome=outcome,
        warnings=situation.wanted.warnings,
    )


def _outcome(situation: _Situation, spec: Spec, counted: restarts.Counted) -> Outcome | None:
    job, observed, now = situation.job, situation.observed, situation.now
    found = outcome_policy.found(job, observed, now)
    if found is None:
        since, begun = _since(situation, spec), report.has_begun(job)
        found = deadlines.exceeded(spec, since, now, begun=begun)
    return found or restarts.ended(counted, spec.failure_policy, now)


def _since(situation: _Situation, spec: Spec) -> datetime | None:
    """When the coordinator started or was resumed; Kubernetes keeps it for us."""
    keeper = outcome_policy.coordinator_job(situation.job, situation.observed)
    return None if keeper is None or spec.suspend else keeper.started


def _problems(situation: _Situation, outcome: Outcome | None) -> tuple[Problem, ...]:
    if outcome is not None:
        return ()
    observed, knowledge = situation.observed, situation.knowledge
    children = [*observed.children.values(), *knowledge.in_the_way]
    found = [
        *situation.wanted.problems,
        knowledge.refused,
        ownership.conflict(situation.job, children),
        *starting.problems(situation.job, observed, situation.now),
        knowledge.error,
    ]
    return tuple(problem for problem in found if problem is not None)


def _record(
    situation: _Situation, outcome: Outcome | None, counted: restarts.Counted
) -> list[Action]:
    job = situation.job
    actions: list[Action] = []
    if outcome is not None and job.outcome is None:
        # Before anything is stopped: whoever comes after must know that this is the end.
        actions.append(Annotate(cluster_labels.OUTCOME, outcomes.to_annotation(outcome)))
    if outcome is None and counted.restarts_all:
        # Before the failure counts as known: an operator that dies between does it again.
        pods = situation.observed.pods_of(job)
        going = [pod for pod in pods if pod.gone_at is None and not pod.over]
        actions += [EndPod(pod.name, pod.uid) for pod in going]
    if counted.annotation and counted.annotation != job.restarts:
        actions.append(Annotate(parsing.RESTARTS, counted.annotation))
    return actions


def _remove_lost(situation: _Situation) -> list[Action]:
    overdue = lost_pods.overdue(situation.job, situation.observed, situation.now)
    return [RemovePod(pod.name, pod.uid, pod.role) for pod in overdue]


def _change(
    situation: _Situation, spec: Spec, stage: Stage, problems: tuple[Problem, ...]
) -> list[Action]:
    scale = stages.scale(stage, spec, situation.observed)
    context = situation.wanted.context
    if stage is not Stage.RUN:
        return workloads.stop(situation.job, situation.observed, scale)
    if context is None or any(problem.type in workloads.BLOCKING for problem in problems):
        return []
    expected = desired.expected(situation.job, context.config)
    target = workloads.Target(situation.job, context.config, expected, scale)
    changes = workloads.run(target, situation.observed, situation.knowledge.written)
    due = key_checks.due_at(situation.job, situation.observed, situation.knowledge.keys_checked)
    if due is not None and due <= situation.now:
        changes.append(workloads.check_keys(situation.job, situation.observed))
    unchecked = workloads.to_check(changes)
    if unchecked and situation.wanted.templates and not situation.knowledge.checked:
        return [CheckTemplates(unchecked), *changes]
    return changes


def _wake_at(
    situation: _Situation,
    spec: Spec,
    outcome: Outcome | None,
    due: datetime | None,
    problems: tuple[Problem, ...],
) -> datetime | None:
    job, now = situation.job, situation.now
    instants = [due, lost_pods.next_instant(job, situation.observed)]
    if outcome is None:
        since, begun = _since(situation, spec), report.has_begun(job)
        instants.append(deadlines.next_instant(spec, since, begun=begun))
        instants.append(starting.next_instant(job, situation.observed, now))
        instants.append(
            key_checks.due_at(job, situation.observed, situation.knowledge.keys_checked)
        )
    if any(problem.type in workloads.CONFLICTS for problem in problems):
        instants.append(now + _CHECK_CONFLICT_AFTER)
    return min(
        (instant for instant in instants if instant is not None and instant > now), default=None
    )
