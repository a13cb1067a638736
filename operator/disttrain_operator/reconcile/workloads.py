"""The difference between the children that a job has and those that it shall have. Pure.

What runs is never rendered again: a job's objects are those that were stored with it, whatever
this operator would make of the job today.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from disttrain.job import cluster_names
from disttrain.job.names import Role
from disttrain_operator import times
from disttrain_operator.kinds import WORKLOADS, Kind
from disttrain_operator.manifests import access, children, stored
from disttrain_operator.manifests.children import Child, ChildKey
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.manifests.context import Context, Scale
from disttrain_operator.manifests.stored import Objects
from disttrain_operator.observed import parsing
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import ChildRecord, JobRecord
from disttrain_operator.policies import outcome, starting
from disttrain_operator.policies.outcome import coordinators
from disttrain_operator.policies.problem import Problem, ProblemType
from disttrain_operator.reconcile import desired
from disttrain_operator.reconcile.actions import Action, Create, CreateKeys, Renew, Rescale

_ROLE_OF = {Kind.StatefulSet: Role.SHARD, Kind.ReplicaSet: Role.REPLICA, Kind.Job: Role.COORDINATOR}

_IN_BACKOFF: Final = (
    "its pod was told to end, and Kubernetes would make the next one of the same Job only after a "
    "while"
)
_OTHER_TEMPLATES: Final = "pod templates of the job were changed while it was suspended"


@dataclass(frozen=True, slots=True)
class Target:
    """What a job shall have."""

    job: JobRecord
    context: Context
    digest: str
    """Of the user's pod templates."""
    scale: Scale


def run(target: Target, observed: Observed, common: Collection[ChildKey]) -> list[Action]:
    """Create what is missing, make again what shall be otherwise, scale what is too large or small.

    `common`: what is there of the objects that the jobs of a namespace share.
    """
    own = observed.children_of(target.job, WORKLOADS)
    stale = [child for child in own if child.templates != target.digest]
    others = [child for child in stale if not child.wanted]
    if any(child.remaining for child in others):
        # They were stopped to be made from other templates: their end tells when to go on.
        return []
    if others and others != stale:
        return _stop_for_other_templates(target.job, observed)
    text, digest = _text(target, own)
    target = replace(target, digest=digest)
    objects = desired.objects(text, target.context)
    if objects is None:
        return []
    waiting = outcome.coordinator_in_backoff(target.job, observed)
    renewed = {} if waiting is None else {(waiting.kind, waiting.name): _IN_BACKOFF}
    renewed |= {(child.kind, child.name): _OTHER_TEMPLATES for child in others}
    actions = _absent(target, objects, observed, common)
    if not own:
        # Nobody may read Secrets, so the workloads tell whether this is the first time.
        actions.insert(0, _keys(target.job, objects, observed))
    for child in objects.children:
        if child.key not in observed.children and not _must_wait(child, target.job, observed):
            actions.append(Create(_whole(child, text, target)))
        elif child.key in renewed:
            seen, because = observed.children[child.key], renewed[child.key]
            actions.append(_renew(_whole(child, text, target), seen, because))
    return [*actions, *_rescale(target.job, observed, target.scale, leave=renewed)]


def check_keys(target: Target, observed: Observed) -> list[Action]:
    """Make the keys, should they be gone; the processes with those of before must start again."""
    text, _ = _text(target, observed.children_of(target.job, WORKLOADS))
    objects = desired.objects(text, target.context)
    return [] if objects is None else [_keys(target.job, objects, observed)]


def stop(job: JobRecord, observed: Observed, scale: Scale) -> list[Action]:
    """Scale what is there; nothing is created, whatever is missing."""
    return [*_rescale(job, observed, scale), *_rescale_deployment(job, observed, scale)]


def _stop_for_other_templates(job: JobRecord, observed: Observed) -> list[Action]:
    """Go on with the stop of a job that was resumed before all of it had stopped."""
    nothing = Scale(shards=0, replicas=0, coordinator=False)
    stops = _rescale(job, observed, nothing)
    return [replace(each, because=_OTHER_TEMPLATES) for each in stops]


def unmarked(job: JobRecord, observed: Observed) -> Problem | None:
    """What keeps the operator from making anything for a job of which something runs already."""
    own = observed.children_of(job, WORKLOADS)
    if not own or any(desired.is_readable(child.objects) for child in own):
        return None
    message = (
        f"{own[0].kind.name} {own[0].name} has no annotation {stored.OBJECTS} that can be read: it "
        "was taken away, or an older operator made the job; what runs trains on, and is scaled and "
        "stopped, but nothing is made again: for that delete the job, and create it again"
    )
    return Problem(ProblemType.NOT_SUPPORTED, message, "MadeByAnotherOperator")


def to_check(actions: list[Action]) -> tuple[Child, ...]:
    created = (action.child for action in actions if isinstance(action, Create | Renew))
    return tuple(child for child in created if child.kind in WORKLOADS)


def _text(target: Target, own: list[ChildRecord]) -> tuple[str, str]:
    """The objects that count, and the digest of the templates that they were made from.

    They are those that were made from the same templates, or that still run.
    """
    same = [child for child in own if child.templates == target.digest]
    running = [child for child in own if child.wanted or child.remaining]
    for child in (*same, *running):
        if desired.is_readable(child.objects):
            return child.objects, child.templates
    return desired.rendered(target.job, target.context.config), target.digest


def _absent(
    target: Target, objects: Objects, observed: Observed, common: Collection[ChildKey]
) -> list[Action]:
    """Make what stands around the workloads: what jobs share, and rights of a chosen account."""
    shared = children.common(target.job.key.namespace, target.context.config)
    wanted = [each for each in shared if each.key not in common]
    coordinator = next(each for each in objects.children if each.kind is Kind.Job)
    binding = access.binding_of(target.context, coordinator.body)
    if binding is not None and children.of(binding).key not in observed.children:
        wanted.append(children.of(binding))
    return [Create(child) for child in wanted]


def _keys(job: JobRecord, objects: Objects, observed: Observed) -> CreateKeys:
    return CreateKeys(objects.launch, starting.key_holders(job, observed))


def _whole(child: Child, text: str, target: Target) -> Child:
    return stored.marked(children.at_scale(child, target.scale), text, target.digest)


def _must_wait(child: Child, job: JobRecord, observed: Observed) -> bool:
    """Whether another Job would start a second coordinator beside the one that is still ending."""
    return child.kind is Kind.Job and any(not pod.over for pod in coordinators(job, observed))


def _renew(child: Child, seen: ChildRecord, because: str) -> Renew:
    body = child.body
    if seen.wanted and seen.started is not None:
        # It was not suspended, so the deadline counts from its first start.
        annotations = {**body["metadata"]["annotations"], parsing.STARTED: times.text(seen.started)}
        body = {**body, "metadata": {**body["metadata"], "annotations": annotations}}
    return Renew(replace(child, body=body), seen, because)


def _rescale(
    job: JobRecord, observed: Observed, scale: Scale, leave: Collection[ChildKey] = ()
) -> list[Rescale]:
    return [
        Rescale((child.kind, child.name), child.uid, scale.of(child.kind))
        for child in observed.children_of(job, WORKLOADS)
        if not child.deleting
        and child.ended is None
        and (child.kind, child.name) not in leave
        and child.wanted != scale.of(child.kind)
    ]


def _rescale_deployment(job: JobRecord, observed: Observed, scale: Scale) -> list[Rescale]:
    """Scale what an older operator kept the replicas with; its ReplicaSets tell how many run."""
    name = cluster_names.replica_set(job.key.name)
    sets = of_deployment(observed, name)
    if not sets or sum(each.wanted for each in sets) == scale.replicas:
        return []
    return [Rescale((Kind.Deployment, name), sets[0].owner_uid, scale.replicas)]


def of_deployment(observed: Observed, name: str) -> list[ChildRecord]:
    """The ReplicaSets of a Deployment, which itself nobody watches."""
    owner = f"{Kind.Deployment.name} {name}"
    return [
        each
        for each in observed.children.values()
        if each.kind is Kind.ReplicaSet and each.owned_by == owner and not each.deleting
    ]


def allowed_by_now(
    changes: list[Action], observed: Observed, config: ManifestConfig
) -> tuple[list[Action], Problem | None]:
    """The changes; if their pods are beyond the limits, those that end pods alone, and why.

    What was stored with the job was maybe made when more was allowed.
    """
    found = (
        desired.refused(child.body["spec"]["template"], _ROLE_OF[child.kind], config)
        for child in _makers(changes, observed)
    )
    problem = next((each for each in found if each is not None), None)
    if problem is None:
        return changes, None
    message = f"what was stored with the job is no longer allowed: {problem.message}"
    ending = [each for each in changes if isinstance(each, Rescale) and not _grows(each, observed)]
    return [*ending], replace(problem, message=message)


def _makers(changes: Iterable[Action], observed: Observed) -> Iterator[Child]:
    for change in changes:
        if isinstance(change, Create | Renew) and change.child.kind in _ROLE_OF:
            yield change.child
        elif isinstance(change, Rescale) and _grows(change, observed):
            stored = desired.unpacked(observed.children[change.child].objects)
            children = () if stored is None else stored.children
            yield from (child for child in children if child.key == change.child)


def _grows(change: Rescale, observed: Observed) -> bool:
    seen = observed.children.get(change.child)
    return seen is not None and change.wanted > seen.wanted
