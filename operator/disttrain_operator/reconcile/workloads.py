"""The difference between the children that a job has and those that it shall have. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from disttrain_operator import times
from disttrain_operator.kinds import WORKLOADS, Kind
from disttrain_operator.manifests.children import Child, Expected
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.manifests.context import Scale
from disttrain_operator.observed import parsing
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import ChildRecord, JobRecord
from disttrain_operator.policies import held_back, key_checks, problem
from disttrain_operator.policies.outcome import coordinators
from disttrain_operator.policies.problem import ProblemType
from disttrain_operator.reconcile import desired
from disttrain_operator.reconcile.actions import (
    Action,
    Apply,
    Create,
    CreateKeys,
    EndPod,
    Renew,
    Rescale,
)
from disttrain_operator.reconcile.knowledge import FIRST_GENERATION

BLOCKING: Final = problem.BLOCKING
CONFLICTS: Final = frozenset({ProblemType.NAME_CONFLICT, ProblemType.WAITING_FOR_PREVIOUS})


@dataclass(frozen=True, slots=True)
class Target:
    """What a job shall have."""

    job: JobRecord
    config: ManifestConfig
    children: tuple[Expected, ...]
    """Their scale does not count."""
    scale: Scale


def run(target: Target, observed: Observed, written: Mapping[str, int]) -> list[Action]:
    """Create what is missing, repair what was changed, scale what should be larger or smaller."""
    seen = observed.children
    missing, held = _missing(target, observed), held_back.coordinator(target.job, observed)
    renewed = {(held.kind, held.name)} if held is not None else set()
    drifted = {
        child.key for child in target.children if _has_drifted(child, seen.get(child.key), written)
    }
    actions: list[Action] = []
    if missing or drifted or renewed:
        for child in desired.scaled(target.job, target.config, target.scale):
            if child.key in missing:
                actions.append(Create(child))
            elif child.key in renewed:
                actions.append(_renew(child, seen[child.key]))
            elif child.key in drifted:
                actions.append(Apply(child, seen[child.key].uid))
    if any(kind is Kind.ConfigMap for kind, _ in missing):
        # Nobody may read Secrets, so the ConfigMap tells whether this is the first time.
        actions.insert(0, check_keys(target.job, observed))
    return actions + _rescale(target.job, observed, target.scale, leave=drifted | renewed)


def check_keys(job: JobRecord, observed: Observed) -> CreateKeys:
    """Make the keys, should they be gone; the processes with those of before must start again."""
    holders = key_checks.holders(job, observed)
    return CreateKeys(tuple(EndPod(pod.name, pod.uid) for pod in holders))


def stop(job: JobRecord, observed: Observed, scale: Scale) -> list[Action]:
    """Scale what is there; nothing is created, whatever is missing."""
    return _rescale(job, observed, scale, leave=set())


def _missing(target: Target, observed: Observed) -> set[tuple[Kind, str]]:
    missing = {child.key for child in target.children if child.key not in observed.children}
    if any(not pod.over for pod in coordinators(target.job, observed)):
        # Another Job would start a second coordinator beside the one that is still ending.
        return {key for key in missing if key[0] is not Kind.Job}
    return missing


def _renew(child: Child, seen: ChildRecord) -> Renew:
    body = child.body
    if seen.wanted and seen.started is not None:
        # It was not suspended, so the deadline counts from its first start.
        annotations = {**body["metadata"]["annotations"], parsing.STARTED: times.text(seen.started)}
        body = {**body, "metadata": {**body["metadata"], "annotations": annotations}}
    return Renew(replace(child, body=body), seen.uid, seen.version)


def to_check(actions: list[Action]) -> tuple[Child, ...]:
    """The workloads that are about to be created."""
    created = (action.child for action in actions if isinstance(action, Create))
    return tuple(child for child in created if child.kind in WORKLOADS)


def _has_drifted(child: Expected, seen: ChildRecord | None, written: Mapping[str, int]) -> bool:
    if seen is None or seen.deleting or child.kind is Kind.PersistentVolumeClaim:
        return False
    if seen.fingerprint != child.fingerprint:
        return True
    # Objects without a generation say nothing about edits by hand.
    expected = written.get(seen.uid, FIRST_GENERATION)
    return seen.generation > 0 and seen.generation > expected


def _rescale(
    job: JobRecord, observed: Observed, scale: Scale, leave: set[tuple[Kind, str]]
) -> list[Action]:
    wanted = {
        Kind.StatefulSet: scale.shards,
        Kind.Deployment: scale.replicas,
        Kind.Job: int(scale.coordinator),
    }
    return [
        Rescale(key, child.uid, _spec(child.kind, wanted[child.kind]))
        for key, child in observed.children.items()
        if child.kind in wanted
        and child.owner_uid == job.uid
        and not child.deleting
        and child.ended is None
        and key not in leave
        and child.wanted != wanted[child.kind]
    ]


def _spec(kind: Kind, wanted: int) -> tuple[tuple[str, int | bool], ...]:
    return (("suspend", not wanted),) if kind is Kind.Job else (("replicas", wanted),)
