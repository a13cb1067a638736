"""Does what a plan asks for, and keeps what the API server answers. Decides nothing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from disttrain.job import cluster_labels
from disttrain.job.credentials import Trust
from disttrain.job.names import Role
from disttrain.job.status import Phase
from disttrain_operator import untrusted
from disttrain_operator.cluster.client import Client, Query
from disttrain_operator.errors import Conflict, Forbidden, NotFound, Refused
from disttrain_operator.kinds import WORKLOADS, Kind
from disttrain_operator.manifests import launch_secret, stored
from disttrain_operator.manifests.children import Child
from disttrain_operator.manifests.context import Context
from disttrain_operator.observed import outcomes, parsing
from disttrain_operator.observed.inventory import Inventory
from disttrain_operator.observed.records import ChildRecord, JobRecord, PodRecord
from disttrain_operator.policies import missing_pods
from disttrain_operator.policies.problem import Problem, ProblemType
from disttrain_operator.reconcile import actions, events, order, report, workloads
from disttrain_operator.reconcile.actions import Knowledge

LOG = logging.getLogger(__name__)

_ENDED = {
    "phase": "Failed",
    "reason": "NodeLost",
    "message": "its node does not answer; its process is fenced should it still run",
}
_AT_ONCE = 64
"""Requests of one job: those of thousands of replicas would time out waiting for each other."""


class Actor:
    """Acts for one job, once."""

    def __init__(
        self,
        client: Client,
        inventory: Inventory,
        trust: Callable[[str], Trust],
        context: Context | None,
        knowledge: Knowledge,
        clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._inventory = inventory
        self._trust = trust
        self._context = context
        self._knowledge = knowledge
        self._clock = clock
        self._added: list[int] = []
        self._removed: list[int] = []
        """Replicas of several processes: one Event tells of all of them."""

    async def perform(self, job: JobRecord, steps: Sequence[actions.Action]) -> None:
        """Do all of it; stops early when the API server refuses a template."""
        waiting: list[actions.Action] = []
        for action in steps:
            if isinstance(action, order.ONE_BY_ONE):
                await self._at_once(job, waiting)
                waiting = []
                await self._do(job, action)
                if self._knowledge.refused is not None:
                    return
            else:
                waiting.append(action)
        await self._at_once(job, waiting)
        if self._added or self._removed:
            await self._record(job, events.replicas_changed(self._added, self._removed))

    async def _at_once(self, job: JobRecord, steps: Sequence[actions.Action]) -> None:
        """Do things together, wave by wave; of each wave all is tried before an error.

        Where a name is taken nothing is made that would run, and what was made is taken back.
        """
        is_first = not self._workloads(job)
        for wave in order.waves(steps):
            await _all(self._do(job, each) for each in wave)
            if self._knowledge.in_the_way:
                if is_first:
                    await self._take_back(job)
                return

    def _workloads(self, job: JobRecord) -> list[ChildRecord]:
        return self._inventory.at(job.key).children_of(job, WORKLOADS)

    async def _take_back(self, job: JobRecord) -> None:
        """Delete the workloads that were made before it was seen that a name is taken."""
        taken = self._knowledge.in_the_way[0]
        for each in self._workloads(job):
            with suppress(NotFound, Conflict):
                await self._client.delete(each.kind, job.key.namespace, each.name, each.uid)
                await self._record(job, events.taken_back(each, taken))
            self._inventory.drop(each)

    def _do(self, job: JobRecord, action: actions.Action) -> Awaitable[None]:
        calls: dict[type, Callable[[JobRecord, Any], Awaitable[None]]] = {
            actions.Annotate: self._annotate,
            actions.CheckTemplates: self._check,
            actions.CreateKeys: self._create_keys,
            actions.Create: self._create_missing,
            actions.Renew: self._renew,
            actions.Remove: self._remove,
            actions.Rescale: self._rescale,
            actions.RestartAll: self._restart_all,
            actions.RemovePod: self._remove_pod,
            actions.ReadEvents: self._read_events,
            actions.DeleteJob: self._delete,
        }
        return calls[type(action)](job, action)

    async def _annotate(self, job: JobRecord, action: actions.Annotate) -> None:
        metadata = {"uid": job.uid, "annotations": {action.name: action.value}}
        key = job.key
        patch = {"metadata": metadata}
        try:
            answer = await self._client.merge(Kind.DistTrainJob, key.namespace, key.name, patch)
        except NotFound:
            self._inventory.drop(job)
            raise
        except Conflict:
            # Somebody else wrote at the same time, or it is another job by now.
            await read_again(self._client, self._inventory, job)
            raise
        self._inventory.put(parsing.job(answer, report.FIELDS))

    async def _check(self, _: JobRecord, action: actions.CheckTemplates) -> None:
        for child in action.children:
            try:
                await self._client.create(child.kind, child.body, dry_run=True)
            except Refused as error:
                self._knowledge.refused = _invalid_template(child.kind, child.name, error)
                return
            except Conflict:
                continue
        self._knowledge.checked = True

    async def _create_keys(self, job: JobRecord, action: actions.CreateKeys) -> None:
        if self._context is None:
            return
        self._knowledge.keys_checked = self._clock()
        try:
            encrypted = launch_secret.needs_certificates_by(action.launch)
            trust = self._trust(self._context.uid) if encrypted else None
            secret = launch_secret.secret(self._context, trust, action.launch)
            made = await self._client.create(Kind.Secret, secret)
        except Conflict:
            # Its name holds the job's uid, so it is the job's own.
            return
        if action.pods:
            LOG.warning("%s: its keys were deleted; all pods start again with new ones", job.key)
            await self._end(action.pods)
        # Not before: else it would hide that pods which were not ended believe another one.
        if action.authority:
            await self._annotate(job, actions.Annotate(stored.AUTHORITY, action.authority))
        if action.pods:
            event = events.new_keys(job, str(made["metadata"].get("uid")), self._clock())
            await events.record(self._client, event)

    async def _renew(self, job: JobRecord, action: actions.Renew) -> None:
        seen, namespace = action.seen, job.key.namespace
        try:
            await self._client.delete(
                seen.kind, namespace, seen.name, seen.uid, version=seen.version
            )
        except Conflict:
            # It has changed: the next reconciliation decides again.
            return
        except NotFound:
            pass
        self._inventory.drop(seen)
        if await self._create(job, action.child):
            await self._record(job, events.renewed(action))

    async def _create_missing(self, job: JobRecord, action: actions.Create) -> None:
        child = action.child
        if not await self._create(job, child) or job.phase != Phase.RUNNING:
            return
        if child.workload is not None and child.workload.group is not None:
            self._added.append(child.workload.group)
        else:
            await self._record(job, events.made_again(child.kind, child.name))

    async def _remove(self, job: JobRecord, action: actions.Remove) -> None:
        seen = action.seen
        with suppress(NotFound, Conflict):
            await self._client.delete(seen.kind, job.key.namespace, seen.name, seen.uid)
        self._inventory.drop(seen)
        if seen.workload is not None and seen.workload.group is not None:
            self._removed.append(seen.workload.group)

    async def _create(self, job: JobRecord, child: Child) -> bool:
        """Make an object; returns whether it was."""
        try:
            answer = await self._client.create(child.kind, child.body)
        except Conflict:
            await self._find_in_the_way(job, child.kind, child.name)
        except Refused as error:
            if child.kind not in WORKLOADS:
                raise
            self._knowledge.refused = _invalid_template(child.kind, child.name, error)
        else:
            self._keep_made(child.kind, {**child.body, "metadata": answer["metadata"]})
            return True
        return False

    async def _find_in_the_way(self, job: JobRecord, kind: Kind, name: str) -> None:
        try:
            found = await self._client.get(kind, job.key.namespace, name)
        except NotFound:
            return
        record = parsing.child(kind, found)
        if record.owner_uid == job.uid or kind is Kind.PersistentVolumeClaim or _is_common(found):
            self._keep(kind, found)
        else:
            self._knowledge.in_the_way = (*self._knowledge.in_the_way, record)

    async def _rescale(self, job: JobRecord, action: actions.Rescale) -> None:
        kind, name = action.child
        if kind is Kind.Deployment:
            await self._rescale_deployment(job, action)
            return
        before = self._inventory.at(job.key).children.get(action.child)
        try:
            answer = await self._client.merge(kind, job.key.namespace, name, _scaled(action))
        except (NotFound, Conflict):
            self._inventory.drop_at(job.key, action.child, action.uid)
        else:
            self._keep(kind, answer)
            await self._record(job, events.scaled(action, before))

    async def _rescale_deployment(self, job: JobRecord, action: actions.Rescale) -> None:
        """Scale what an older operator made, if it is the job's; its ReplicaSets follow soon."""
        (kind, name), namespace = action.child, job.key.namespace
        sets = workloads.of_deployment(self._inventory.at(job.key), name)
        try:
            found = await self._client.get(kind, namespace, name)
            if not _is_owned(found, job):
                message = f"{kind.name} {name} belongs to somebody else"
                raise Conflict(message)
            await self._client.merge(kind, namespace, name, _scaled(action))
        except (NotFound, Conflict):
            for each in sets:
                self._inventory.drop(each)
            return
        wanted = [action.wanted, *(0 for _ in sets)]
        for each, number in zip(sets, wanted, strict=False):
            self._inventory.put(replace(each, wanted=number))
        await self._record(job, events.scaled(action, None))

    async def _restart_all(self, job: JobRecord, action: actions.RestartAll) -> None:
        await self._end(action.pods)
        await self._record(job, events.restarted(action))

    async def _end(self, pods: Iterable[PodRecord]) -> None:
        """Delete pods: their processes end in their time, and their controllers make others."""
        await _all(self._end_pod(pod) for pod in pods)

    async def _end_pod(self, pod: PodRecord) -> None:
        with suppress(NotFound, Conflict):
            await self._client.delete(Kind.Pod, pod.job.namespace, pod.name, pod.uid)

    async def _remove_pod(self, job: JobRecord, action: actions.RemovePod) -> None:
        pod, namespace = action.pod, job.key.namespace
        why = await self._why_lost(pod)
        if not why:
            self._knowledge.answered[pod.node] = self._clock()
            return
        try:
            await self._client.delete(Kind.Pod, namespace, pod.name, pod.uid, at_once=True)
            if pod.role is Role.COORDINATOR:
                # A Job's finalizer holds it until somebody says that it has ended.
                patch = {"metadata": {"uid": pod.uid}, "status": _ENDED}
                await self._client.merge(Kind.Pod, namespace, f"{pod.name}/status", patch)
        except (NotFound, Conflict):
            self._inventory.drop(pod)
            return
        self._inventory.drop(pod)
        await self._record(job, events.removed(action, why))

    async def _why_lost(self, pod: PodRecord) -> str:
        """Why a pod's node is lost, in words; empty for a node that answers, or for none."""
        if not pod.node:
            return ""
        try:
            return parsing.trouble_of_node(await self._client.get(Kind.Node, "", pod.node))
        except NotFound:
            return f"its node {pod.node} is gone"
        except Forbidden:
            # Who looks after some namespaces alone has no right on nodes, but the pod may tell.
            return "a taint of its node took it away" if pod.tainted else ""

    async def _read_events(self, job: JobRecord, action: actions.ReadEvents) -> None:
        for uid in action.uids:
            about = f"involvedObject.uid={uid},reason={missing_pods.REASON}"
            query = Query(kind=Kind.Event, namespace=job.key.namespace, fields=about)
            found = [each async for page in self._client.pages(query) for each in page.items]
            said, known = missing_pods.newest(found), self._knowledge.lacks
            known[uid] = replace(known[uid], asked=self._clock(), said=said)

    async def _delete(self, job: JobRecord, _: actions.DeleteJob) -> None:
        key = job.key
        try:
            await self._client.delete(Kind.DistTrainJob, key.namespace, key.name, job.uid)
        except (NotFound, Conflict):
            self._inventory.drop(job)
            return
        self._inventory.drop(job)
        await self._record(job, events.deleted(job))

    async def _record(self, job: JobRecord, done: events.EventText) -> None:
        await events.record_action(self._client, job, done, self._clock())

    def _keep_made(self, kind: Kind, made: dict[str, Any]) -> None:
        """Keep what was made, of whose state the answer says nothing.

        A watch may have told of it before the answer came, with its state, and tells it once.
        """
        record = parsing.child(kind, made)
        known = self._inventory.at(record.job).children.get((kind, record.name))
        if known is None or known.uid != record.uid:
            self._inventory.put(record)

    def _keep(self, kind: Kind, answer: dict[str, Any]) -> None:
        self._inventory.put(parsing.child(kind, answer))


async def read_again(client: Client, inventory: Inventory, job: JobRecord) -> JobRecord:
    """Keep the job of the name as it is now. Raises NotFound."""
    try:
        body = await client.get(Kind.DistTrainJob, job.key.namespace, job.key.name)
    except NotFound:
        inventory.drop(job)
        raise
    found = parsing.job(body, report.FIELDS)
    inventory.put(found)
    return found


async def _all(calls: Iterable[Awaitable[None]]) -> None:
    """Do things together; all of it is tried before an error."""
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Awaitable[None]) -> None:
        async with free:
            await call

    for result in await asyncio.gather(*map(one, calls), return_exceptions=True):
        if result is not None:
            raise result


def _scaled(action: actions.Rescale) -> dict[str, Any]:
    """The patch; the API server refuses it for another object of the name."""
    metadata: dict[str, Any] = {"uid": action.uid}
    if action.outcome is not None:
        metadata["annotations"] = {cluster_labels.OUTCOME: outcomes.to_annotation(action.outcome)}
    return {"metadata": metadata, "spec": action.spec}


def _is_owned(found: dict[str, Any], job: JobRecord) -> bool:
    owners = untrusted.items(untrusted.mapping(found, "metadata").get("ownerReferences"))
    return any(owner.get("uid") == job.uid for owner in owners)


def _is_common(found: dict[str, Any]) -> bool:
    """Whether an object is one that the operator made for all jobs of the namespace."""
    labels = untrusted.mapping(found, "metadata", "labels")
    own = cluster_labels.managed().items() <= labels.items()
    return own and cluster_labels.INSTANCE not in labels


def _invalid_template(kind: Kind, name: str, error: Refused) -> Problem:
    message = f"the API server does not take {kind.name} {name}: {error}"
    return Problem(ProblemType.INVALID_TEMPLATE, message)
