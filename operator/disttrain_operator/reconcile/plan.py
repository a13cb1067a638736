"""What to do about a job, from what was seen of it. Pure: the reconciler's every decision."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from disttrain.job.cluster_names import MANAGED_BY_OPERATOR
from disttrain.job.names import Role
from disttrain.job.spec import Spec
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.observed import parsing
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import JobRecord, Outcome, PodRecord
from disttrain_operator.policies import (
    conditions,
    deadlines,
    key_checks,
    lost_pods,
    missing_pods,
    problem,
    restarts,
    stages,
    starting,
)
from disttrain_operator.policies import outcome as outcome_policy
from disttrain_operator.policies.problem import Problem, first_of_each_type
from disttrain_operator.policies.stages import Stage
from disttrain_operator.reconcile import desired, refused, report, workloads
from disttrain_operator.reconcile.actions import (
    Action,
    Annotate,
    AskWhy,
    CheckTemplates,
    DeleteJob,
    Plan,
    RemovePod,
    Rescale,
    RestartAll,
)
from disttrain_operator.reconcile.desired import Desired
from disttrain_operator.reconcile.knowledge import Knowledge

_CHECK_CONFLICT_AFTER = timedelta(seconds=5)
"""Whose name is taken looks again: what stands in the way may not be watched."""


_WHY = {
    Stage.RUN: "the job's spec says so",
    Stage.STOP_COORDINATOR: "the job stops, its coordinator first",
    Stage.STOP_ALL: "the job is stopped",
    Stage.ENDED: "the job has ended",
}
"""Why workloads are scaled, in words for Events and the log."""


@dataclass(frozen=True, slots=True)
class _Situation:
    job: JobRecord
    observed: Observed
    knowledge: Knowledge
    wanted: Desired
    now: datetime
    config: ManifestConfig


def make(observed: Observed, knowledge: Knowledge, config: ManifestConfig, now: datetime) -> Plan:
    """The plan for one job; an empty one for what is not ours to touch."""
    job = observed.job
    if job is None or job.deleting:
        return Plan()
    wanted = desired.of(job, config)
    situation = _Situation(job, observed, knowledge, wanted, now, config)
    # What runs by a manifest that an older operator accepted is looked after to its end.
    spec = refused.spec(job.spec) if wanted.context is None else wanted.context.job.spec
    if (spec.managed_by or MANAGED_BY_OPERATOR) != config.manager:
        return Plan()
    return _planned(situation, spec)


def _planned(situation: _Situation, spec: Spec) -> Plan:
    job, observed, now = situation.job, situation.observed, situation.now
    members = {Role.SHARD: spec.shards, Role.REPLICA: spec.replicas.count}
    counted = restarts.count(job.restarts, observed.pods_of(job), spec.failure_policy, members)
    outcome = _outcome(situation, spec, counted)
    stage = stages.decide(job, spec, observed, outcome)
    problems = _problems(situation, outcome)
    actions = [*_count(situation, outcome, counted), *_remove_lost(situation)]
    actions += _ask_why(situation, outcome)
    wished = _change(situation, spec, stage, problems)
    changes, beyond = workloads.allowed_by_now(wished, observed, situation.config)
    if beyond is not None:
        problems = first_of_each_type((*problems, beyond))
    actions += _explained(changes, observed, stage, outcome)
    due = deadlines.deletion_due_at(outcome, spec.ttl_seconds_after_finished)
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
        found = deadlines.exceeded(spec, _since(situation, spec), now)
        if found is not None and (hindrances := _problems(situation, None)):
            found = replace(found, message=f"{found.message}; {hindrances[0].message}")
    return found or restarts.ended(counted, spec.failure_policy, now)


def _since(situation: _Situation, spec: Spec) -> deadlines.Since:
    job = situation.job
    if spec.suspend:
        return deadlines.Since(started=None, waits=None)
    keeper = outcome_policy.coordinator_job(job, situation.observed)
    begun = report.has_begun(job)
    return deadlines.Since(
        # Kubernetes keeps it for us.
        started=None if keeper is None else keeper.started,
        waits=None if begun else conditions.resumed_at(job.status, situation.now) or job.created,
    )


def _problems(situation: _Situation, outcome: Outcome | None) -> tuple[Problem, ...]:
    if outcome is not None:
        return ()
    observed, knowledge = situation.observed, situation.knowledge
    children = [*observed.children.values(), *knowledge.in_the_way]
    unmarked = workloads.unmarked(situation.job, observed)
    found = [
        *situation.wanted.problems,
        knowledge.refused,
        # Where nothing is made, no name is needed: a Deployment's ReplicaSet is not in the way.
        unmarked or problem.conflict(situation.job, children),
        *starting.problems(situation.job, observed, knowledge.lacks, situation.now),
        knowledge.error,
    ]
    return first_of_each_type(problem for problem in found if problem is not None)


def _count(
    situation: _Situation, outcome: Outcome | None, counted: restarts.Counted
) -> list[Action]:
    job = situation.job
    actions: list[Action] = []
    if outcome is None and counted.why_restarts_all:
        # Before the failure counts as known: an operator that dies between does it again.
        pods = situation.observed.pods_of(job)
        going = [pod for pod in pods if pod.gone_at is None and not pod.over]
        actions.append(RestartAll(tuple(going), counted.why_restarts_all))
    if counted.annotation and counted.annotation != job.restarts:
        actions.append(Annotate(parsing.RESTARTS, counted.annotation))
    return actions


def _remove_lost(situation: _Situation) -> list[Action]:
    now = situation.now
    return [RemovePod(pod, _lateness(pod, now)) for pod, at in _lost_pods(situation) if at <= now]


def _lost_pods(situation: _Situation) -> list[tuple[PodRecord, datetime]]:
    if not situation.config.removes_lost_pods:
        return []
    return lost_pods.due(situation.job, situation.observed, situation.knowledge.answered)


def _ask_why(situation: _Situation, outcome: Outcome | None) -> list[Action]:
    if outcome is not None:
        return []
    own, known = situation.observed.children_of(situation.job), situation.knowledge.lacks
    uids = missing_pods.unexplained(own, known, situation.now)
    return [AskWhy(uids)] if uids else []


def _lateness(pod: PodRecord, now: datetime) -> str:
    seconds = 0.0 if pod.gone_at is None else (now - pod.gone_at).total_seconds()
    return f"it should have ended {seconds:.0f} s ago"


def _change(
    situation: _Situation, spec: Spec, stage: Stage, problems: tuple[Problem, ...]
) -> list[Action]:
    scale = stages.scale(stage, spec, situation.observed)
    context = situation.wanted.context
    if stage is not Stage.RUN:
        return workloads.stop(situation.job, situation.observed, scale)
    if context is None or any(each.type in problem.BLOCKING for each in problems):
        # Nothing is made, but what runs is still scaled.
        return workloads.stop(situation.job, situation.observed, scale)
    target = workloads.Target(situation.job, context, situation.wanted.digest, scale)
    changes = workloads.run(target, situation.observed, situation.observed.common)
    due = key_checks.due_at(situation.job, situation.observed, situation.knowledge.keys_checked)
    if due is not None and due <= situation.now:
        changes += workloads.check_keys(target, situation.observed)
    unchecked = workloads.to_check(changes)
    if unchecked and situation.wanted.templates and not situation.knowledge.checked:
        return [CheckTemplates(unchecked), *changes]
    return changes


def _explained(
    actions: list[Action], observed: Observed, stage: Stage, outcome: Outcome | None
) -> list[Action]:
    """Say of each change of scale why it is made, and whether an Event shall tell of it."""
    return [
        replace(
            action,
            because=action.because or _WHY[stage],
            outcome=outcome,
            is_told=_is_scaling(action, observed, stage),
        )
        if isinstance(action, Rescale)
        else action
        for action in actions
    ]


def _is_scaling(action: Rescale, observed: Observed, stage: Stage) -> bool:
    """Whether a part of a running job is scaled; it was not resumed as a whole."""
    seen = observed.children.get(action.child)
    return stage is Stage.RUN and seen is not None and seen.wanted > 0


def _wake_at(
    situation: _Situation,
    spec: Spec,
    outcome: Outcome | None,
    due: datetime | None,
    problems: tuple[Problem, ...],
) -> datetime | None:
    job, now = situation.job, situation.now
    instants = [due]
    instants.append(min((at for _, at in _lost_pods(situation)), default=None))
    if outcome is None:
        instants.append(deadlines.next_instant(spec, _since(situation, spec)))
        instants.append(starting.next_instant(job, situation.observed, now))
        own = situation.observed.children_of(job)
        instants.append(missing_pods.next_instant(own, situation.knowledge.lacks))
        instants.append(
            key_checks.due_at(job, situation.observed, situation.knowledge.keys_checked)
        )
    if any(each.type in problem.CONFLICTS for each in problems):
        instants.append(now + _CHECK_CONFLICT_AFTER)
    return min(
        (instant for instant in instants if instant is not None and instant > now), default=None
    )
