"""Does what a plan asks for, and keeps what the API server answers. Decides nothing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from disttrain.job.keys_file import KeyPair
from disttrain.job.names import Role
from disttrain_operator.cluster.client import Client
from disttrain_operator.errors import Conflict, NotFound, Refused
from disttrain_operator.kinds import NAME_OTHERS, WORKLOADS, Kind
from disttrain_operator.manifests import keys
from disttrain_operator.manifests.context import Context
from disttrain_operator.observed import parsing
from disttrain_operator.observed.inventory import Inventory
from disttrain_operator.observed.records import JobRecord
from disttrain_operator.policies.problem import Problem, ProblemType
from disttrain_operator.reconcile import events, report, telling
from disttrain_operator.reconcile.actions import (
    Action,
    Annotate,
    Apply,
    CheckTemplates,
    Create,
    CreateKeys,
    DeleteJob,
    EndPod,
    RemovePod,
    Renew,
    Rescale,
)
from disttrain_operator.reconcile.knowledge import Knowledge

LOG = logging.getLogger(__name__)

_LOST = {
    "phase": "Failed",
    "reason": "NodeLost",
    "message": "its node does not answer; its process is fenced should it still run",
}
_ONE_BY_ONE = (Annotate, CheckTemplates, CreateKeys, DeleteJob)
"""What others depend on, or what depends on all others."""


class Actor:
    """Acts for one job, during one look at it."""

    def __init__(
        self,
        client: Client,
        inventory: Inventory,
        new_keys: Callable[[], Mapping[Role, KeyPair]],
        context: Context | None,
        knowledge: Knowledge,
        clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._inventory = inventory
        self._new_keys = new_keys
        self._context = context
        self._knowledge = knowledge
        self._clock = clock

    async def perform(self, job: JobRecord, actions: Sequence[Action]) -> None:
        """Do all of it; stops early when the API server refuses a template."""
        waiting: list[Action] = []
        for action in actions:
            if isinstance(action, _ONE_BY_ONE):
                await self._at_once(job, waiting)
                waiting = []
                await self._do(job, action)
                if self._knowledge.refused is not None:
                    return
            else:
                waiting.append(action)
        await self._at_once(job, waiting)

    async def _at_once(self, job: JobRecord, actions: Sequence[Action]) -> None:
        """Do things together, then what names them; all are tried before an error is raised."""
        results: list[BaseException | None] = []
        for last in (False, True):
            calls = (self._do(job, each) for each in actions if _names_others(each) is last)
            results += await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            if result is not None:
                raise result

    def _do(self, job: JobRecord, action: Action) -> Awaitable[None]:
        calls: dict[type, Callable[[JobRecord, Any], Awaitable[None]]] = {
            Annotate: self._annotate,
            CheckTemplates: self._check,
            CreateKeys: self._create_keys,
            Create: self._create,
            Renew: self._renew,
            Apply: self._apply,
            Rescale: self._rescale,
            EndPod: self._end_pod,
            RemovePod: self._remove_pod,
            DeleteJob: self._delete,
        }
        return calls[type(action)](job, action)

    async def _annotate(self, job: JobRecord, action: Annotate) -> None:
        metadata = {"uid": job.uid, "annotations": {action.name: action.value}}
        key = job.key
        patch = {"metadata": metadata}
        try:
            answer = await self._client.merge(Kind.DistTrainJob, key.namespace, key.name, patch)
        except (NotFound, Conflict):
            self._inventory.drop_job(key, job.uid)
            raise
        self._inventory.put_job(parsing.job(answer, report.FIELDS))

    async def _check(self, _: JobRecord, action: CheckTemplates) -> None:
        for child in action.children:
            try:
                await self._client.create(child.kind, child.body, dry_run=True)
            except Refused as error:
                self._knowledge.refused = _invalid_template(child.kind, child.name, error)
                return
            except Conflict:
                continue
        self._knowledge.checked = True

    async def _create_keys(self, job: JobRecord, action: CreateKeys) -> None:
        if self._context is None:
            return
        self._knowledge.keys_checked = self._clock()
        try:
            secret = keys.secret(self._context, self._new_keys())
            made = await self._client.create(Kind.Secret, secret)
        except Conflict:
            # Its name holds the job's uid, so it is the job's own.
            return
        if action.pods:
            LOG.warning("%s: its keys were deleted; all pods start again with new ones", job.key)
            told = events.new_keys(job, str(made["metadata"].get("uid")), self._clock())
            await telling.tell(self._client, told)
            await self._at_once(job, action.pods)

    async def _renew(self, job: JobRecord, action: Renew) -> None:
        child, key = action.child, job.key
        try:
            await self._client.delete(
                child.kind, key.namespace, child.name, action.uid, version=action.version
            )
        except Conflict:
            # It has changed: the next look decides again.
            return
        except NotFound:
            pass
        self._inventory.drop_child(key, child.key, action.uid)
        await self._create(job, Create(child))

    async def _create(self, job: JobRecord, action: Create) -> None:
        child = action.child
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

    async def _find_in_the_way(self, job: JobRecord, kind: Kind, name: str) -> None:
        try:
            found = await self._client.get(kind, job.key.namespace, name)
        except NotFound:
            return
        record = parsing.child(kind, found)
        if record.owner_uid == job.uid or kind is Kind.PersistentVolumeClaim:
            self._keep(kind, found)
        else:
            self._knowledge.in_the_way = (*self._knowledge.in_the_way, record)

    async def _apply(self, _: JobRecord, action: Apply) -> None:
        child = action.child
        metadata = {**child.body["metadata"], "uid": action.uid}
        try:
            answer = await self._client.apply(child.kind, {**child.body, "metadata": metadata})
        except Refused as error:
            self._knowledge.refused = _invalid_template(child.kind, child.name, error)
        else:
            self._keep(child.kind, answer)

    async def _rescale(self, job: JobRecord, action: Rescale) -> None:
        kind, name = action.child
        patch = {"metadata": {"uid": action.uid}, "spec": dict(action.spec)}
        try:
            answer = await self._client.merge(kind, job.key.namespace, name, patch)
        except (NotFound, Conflict):
            self._inventory.drop_child(job.key, (kind, name), action.uid)
        else:
            self._keep(kind, answer)

    async def _end_pod(self, job: JobRecord, action: EndPod) -> None:
        with suppress(NotFound, Conflict):
            await self._client.delete(Kind.Pod, job.key.namespace, action.name, action.uid)

    async def _remove_pod(self, job: JobRecord, action: RemovePod) -> None:
        namespace = job.key.namespace
        with suppress(NotFound, Conflict):
            await self._client.delete(Kind.Pod, namespace, action.name, action.uid, at_once=True)
            if action.role is Role.COORDINATOR:
                # A Job's finalizer holds it until somebody says that it has ended.
                patch = {"metadata": {"uid": action.uid}, "status": _LOST}
                await self._client.merge(Kind.Pod, namespace, f"{action.name}/status", patch)
        self._inventory.drop_pod(job.key, action.name, action.uid)

    async def _delete(self, job: JobRecord, _: DeleteJob) -> None:
        key = job.key
        with suppress(NotFound, Conflict):
            await self._client.delete(Kind.DistTrainJob, key.namespace, key.name, job.uid)
        self._inventory.drop_job(key, job.uid)

    def _keep_made(self, kind: Kind, made: dict[str, Any]) -> None:
        """Keep what was made, of whose state the answer says nothing.

        A watch may have told of it before the answer came, with its state, and tells it once.
        """
        record = parsing.child(kind, {**made, "kind": kind.name})
        known = self._inventory.at(record.job).children.get((kind, record.name))
        if known is None or known.uid != record.uid:
            self._inventory.put_child(record)
        self._knowledge.wrote(record.uid, record.generation)

    def _keep(self, kind: Kind, answer: dict[str, Any]) -> None:
        record = parsing.child(kind, {**answer, "kind": kind.name})
        self._inventory.put_child(record)
        self._knowledge.wrote(record.uid, record.generation)


def _names_others(action: Action) -> bool:
    return isinstance(action, Create) and action.child.kind in NAME_OTHERS


def _invalid_template(kind: Kind, name: str, error: Refused) -> Problem:
    message = f"the API server does not take {kind.name} {name}: {error}"
    return Problem(ProblemType.INVALID_TEMPLATE, message)
