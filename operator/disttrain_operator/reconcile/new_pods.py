"""Which changes lead to new pods, and whether the administrator allows such pods by now. Pure.

A job's objects are those that were stored with it, maybe when more was allowed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.children import Child
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.policies.problem import Problem
from disttrain_operator.reconcile import desired
from disttrain_operator.reconcile.actions import Action, Create, Renew, Rescale

_ROLES = {Kind.StatefulSet: Role.SHARD, Kind.ReplicaSet: Role.REPLICA, Kind.Job: Role.COORDINATOR}


def allowed(
    changes: list[Action], observed: Observed, config: ManifestConfig
) -> tuple[list[Action], Problem | None]:
    """The changes; if their pods are beyond the limits, those that end pods alone, and why."""
    found = (
        desired.refused(child.body["spec"]["template"], _ROLES[child.kind], config)
        for child in _makers(changes, observed)
    )
    problem = next((each for each in found if each is not None), None)
    if problem is None:
        return changes, None
    message = f"what was stored with the job is no longer allowed: {problem.message}"
    ending = [each for each in changes if isinstance(each, Rescale) and not _grows(each, observed)]
    return [*ending], replace(problem, message=message)


def _makers(changes: Iterable[Action], observed: Observed) -> Iterator[Child]:
    """The workloads that will make pods, as they are made or were stored."""
    for change in changes:
        if isinstance(change, Create | Renew) and change.child.kind in _ROLES:
            yield change.child
        elif isinstance(change, Rescale) and _grows(change, observed):
            stored = desired.unpacked(observed.children[change.child].objects)
            children = () if stored is None else stored.children
            yield from (child for child in children if child.key == change.child)


def _grows(change: Rescale, observed: Observed) -> bool:
    seen = observed.children.get(change.child)
    return seen is not None and change.wanted > seen.wanted
