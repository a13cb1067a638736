"""Whether what shall be done is still allowed: a job's objects were stored when more was. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from disttrain.job.names import Role
from disttrain_operator.manifests.children import Child
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.policies.problem import Problem
from disttrain_operator.reconcile import desired
from disttrain_operator.reconcile.actions import Action, Create, Remove, Renew, Rescale


def allowed_by_now(
    changes: list[Action], observed: Observed, config: ManifestConfig
) -> tuple[list[Action], Problem | None]:
    """The changes; if their pods are beyond the limits, those that end pods alone, and why.

    What was stored with the job was maybe made when more was allowed.
    """
    found = (
        desired.refused(child.body["spec"]["template"], role, config)
        for (role, _), child in _makers(changes, observed).items()
    )
    problem = next((each for each in found if each is not None), None)
    if problem is None:
        return changes, None
    message = f"what was stored with the job is no longer allowed: {problem.message}"
    ending = [each for each in changes if _only_ends(each, observed)]
    return ending, replace(problem, message=message)


def _only_ends(change: Action, observed: Observed) -> bool:
    if isinstance(change, Rescale):
        return not _grows(change, observed)
    return isinstance(change, Remove)


def _makers(changes: Iterable[Action], observed: Observed) -> dict[tuple[Role, str], Child]:
    """What makes pods by the changes: of each role and each text, as replicas are alike in it."""
    found: dict[tuple[Role, str], Child] = {}
    for change in changes:
        if isinstance(change, Create | Renew) and change.child.workload is not None:
            found.setdefault((change.child.workload.role, ""), change.child)
        elif isinstance(change, Rescale) and _grows(change, observed):
            text = observed.children[change.child].objects
            stored = desired.unpacked(text)
            role = observed.children[change.child].role
            for child in () if stored is None else stored.children:
                if child.workload is not None and child.workload.role is role:
                    found.setdefault((child.workload.role, text), child)
    return found


def _grows(change: Rescale, observed: Observed) -> bool:
    seen = observed.children.get(change.child)
    return seen is not None and change.wanted > seen.wanted
