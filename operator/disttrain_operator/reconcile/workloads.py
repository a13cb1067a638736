"""The difference between the children that a job has and those that it shall have. Pure.

What runs is never rendered again: a job's objects are those that were stored with it, whatever
this operator would make of the job today.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final

from disttrain.job.names import Role
from disttrain_operator import times
from disttrain_operator.kinds import WORKLOADS, Kind
from disttrain_operator.manifests import access, children, launch_secret, stored
from disttrain_operator.manifests.children import Child, ChildKey
from disttrain_operator.manifests.context import Context, Scale
from disttrain_operator.manifests.stored import Objects
from disttrain_operator.observed import parsing
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import ChildRecord, JobRecord
from disttrain_operator.policies import authority, outcome, starting
from disttrain_operator.policies.outcome import coordinators
from disttrain_operator.policies.problem import Problem, ProblemType
from disttrain_operator.reconcile import desired
from disttrain_operator.reconcile.actions import (
    Action,
    Create,
    CreateKeys,
    Remove,
    Renew,
    Rescale,
)
from disttrain_operator.workload import Workload

_REPLICAS: Final = Workload(Role.REPLICA)
"""Those that are one process each, kept by one object."""

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
    signs_by: str
    """Fingerprint of the authority by which certificates of the job are signed."""


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
        actions.insert(0, _keys(target, objects, observed))
    wanted = _wanted(objects, target.scale)
    # Looked for once, and only if there is something to make.
    whole = partial(_whole, text, target, cache(partial(_authority, target, objects, own)))
    for key, rendered in wanted.items():
        if key in renewed:
            seen, because = observed.children[key], renewed[key]
            actions.append(_renew(whole(rendered()), seen, because))
        elif key not in observed.children:
            child = whole(rendered())
            actions += [] if _must_wait(child, target.job, observed) else [Create(child)]
    surplus = [child for child in own if _is_surplus(child, wanted)]
    actions += [Remove(child) for child in surplus]
    left = {*renewed, *((child.kind, child.name) for child in surplus)}
    return [*actions, *_rescale(target.job, observed, target.scale, leave=left)]


def _wanted(objects: Objects, scale: Scale) -> dict[ChildKey, Callable[[], Child]]:
    """The job's objects, with those of each replica that it shall have now.

    Thousands of replicas have theirs already, and are rendered for nothing at no look.
    """
    return {
        key: partial(children.of_replica, child, index)
        for child in objects.children
        for key, index in children.keys(child, scale.replicas or 0)
    }


def _is_surplus(child: ChildRecord, wanted: Collection[ChildKey]) -> bool:
    """Whether it keeps a replica that was taken away.

    A role's only object has its scale changed; what is going is told of until it is gone.
    """
    is_wanted = (child.kind, child.name) in wanted
    return child.is_of_one_replica and not child.deleting and not is_wanted


def check_keys(target: Target, observed: Observed) -> list[Action]:
    """Make the keys, should they be gone; the processes with those of before must start again."""
    text, _ = _text(target, observed.children_of(target.job, WORKLOADS))
    objects = desired.objects(text, target.context)
    return [] if objects is None else [_keys(target, objects, observed)]


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
    """The workloads that are made, one of each role: others differ in nothing that can be wrong."""
    found: dict[Role, Child] = {}
    for action in actions:
        if isinstance(action, Create | Renew) and action.child.workload is not None:
            found.setdefault(action.child.workload.role, action.child)
    return tuple(found.values())


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
    """Make what stands around the workloads: what jobs share, and who may do and reach what."""
    shared = children.common(target.job.key.namespace, target.context.config)
    wanted = [each for each in shared if each.key not in common]
    coordinator = next(each for each in objects.children if each.kind is Kind.Job)
    bodies = (
        access.binding_of(target.context, coordinator.body),
        access.policy_between_processes(target.context),
    )
    own = [children.of(body) for body in bodies if body is not None]
    wanted += [child for child in own if child.key not in observed.children]
    return [Create(child) for child in wanted]


def _keys(target: Target, objects: Objects, observed: Observed) -> CreateKeys:
    """What says already by which authority a Secret of before was made has to say another one.

    A new job says nothing, and its workloads will; unless it was copied from one that did.
    """
    own = observed.children_of(target.job, WORKLOADS)
    said = authority.believed(target.job, own)
    is_new = not (own or said)
    is_right = is_new or said == target.signs_by
    new = "" if is_right else _authority(target, objects, ())
    return CreateKeys(objects.launch, starting.key_holders(target.job, observed), new)


def _whole(text: str, target: Target, authority_of: Callable[[], str], child: Child) -> Child:
    scaled = children.at_scale(child, target.scale)
    return stored.marked(scaled, text, target.digest, authority_of())


def _authority(target: Target, objects: Objects, own: Sequence[ChildRecord]) -> str:
    """The one that the processes believe whose workload is made now; empty: none, or not known."""
    if not launch_secret.needs_certificates_by(objects.launch):
        return ""
    return authority.believed(target.job, own) if own else target.signs_by


def _must_wait(child: Child, job: JobRecord, observed: Observed) -> bool:
    """Whether pods of one before it are in the way.

    Another Job would start a second coordinator beside the one that is still ending. Another
    StatefulSet of a replica would wait longer than it must for the names of its pods.
    """
    if child.workload is None:
        return False
    if child.workload.role is Role.COORDINATOR:
        return any(not pod.over for pod in coordinators(job, observed))
    if child.workload.group is None:
        return False
    ending = (pod for pod in observed.pods_of(job) if pod.gone_at is not None and not pod.over)
    return any(pod.name.startswith(f"{child.name}-") for pod in ending)


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
    found = []
    for child in observed.children_of(job, WORKLOADS):
        wanted = None if child.workload is None else scale.pods(child.workload)
        key = child.kind, child.name
        is_left = child.deleting or child.ended is not None or key in leave
        if wanted is not None and wanted != child.wanted and not is_left:
            found.append(Rescale(key, child.uid, wanted))
    return found


def _rescale_deployment(job: JobRecord, observed: Observed, scale: Scale) -> list[Rescale]:
    """Scale what an older operator kept the replicas with; its ReplicaSets tell how many run."""
    name, wanted = _REPLICAS.name(job.key.name), scale.pods(_REPLICAS)
    sets = of_deployment(observed, name)
    if not sets or wanted is None or sum(each.wanted for each in sets) == wanted:
        return []
    return [Rescale((Kind.Deployment, name), sets[0].owner_uid, wanted)]


def of_deployment(observed: Observed, name: str) -> list[ChildRecord]:
    """The ReplicaSets of a Deployment, which itself nobody watches."""
    owner = f"{Kind.Deployment.name} {name}"
    return [
        each
        for each in observed.children.values()
        if each.kind is Kind.ReplicaSet and each.owned_by == owner and not each.deleting
    ]
