"""One reconciliation of a job: observe, plan, act, report."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from disttrain.errors import RetryableError
from disttrain.job import certificates
from disttrain.job.credentials import Trust
from disttrain.job.status import Phase
from disttrain_operator.cluster.client import Client
from disttrain_operator.errors import Conflict, Forbidden, NotFound
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.observed import parsing
from disttrain_operator.observed.inventory import Inventory
from disttrain_operator.observed.records import JobKey, JobRecord
from disttrain_operator.policies import missing_pods, outcome, throttle
from disttrain_operator.policies.problem import Problem, ProblemType
from disttrain_operator.reconcile import act, desired, events, plan, report
from disttrain_operator.reconcile.act import Actor
from disttrain_operator.reconcile.actions import Create, DeleteJob, Knowledge, Plan, Renew
from disttrain_operator.telemetry import metrics

LOG = logging.getLogger(__name__)

_ENDED_PHASES = frozenset({Phase.COMPLETE, Phase.FAILED})

_REPEATS = 3
"""Failures of one job after which its conditions say so; fewer are a hiccup."""


class NotConverged(RetryableError):
    """What was done did not lead to what was wanted; somebody else may undo it."""


@dataclass(frozen=True, slots=True)
class _Request:
    key: JobKey
    knowledge: Knowledge
    crowded: bool
    """Whether other jobs wait for theirs."""


class Reconciler:
    """Reconciles jobs, each once at a time. Only for one event loop."""

    def __init__(
        self,
        client: Client,
        inventory: Inventory,
        config: ManifestConfig,
        trust: Callable[[str], Trust],
        relist: Callable[[JobKey, str], Awaitable[None]],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._inventory = inventory
        self._config = config
        self._trust = trust
        self._relist = relist
        self._clock = clock
        self._known: dict[JobKey, Knowledge] = {}

    async def look(self, key: JobKey, num_failures: int, *, crowded: bool = False) -> float | None:
        """Do what is to be done; returns the seconds until the next time, None for no need.

        `crowded`: other jobs wait, so what can wait of this one does.
        """
        job = self._inventory.at(key).job
        try:
            if job is None:
                return None
            return await self._reconcile(
                _Request(key, self._begin(job), crowded), job, num_failures
            )
        finally:
            # No event tells of a job that was deleted here, or found gone.
            if self._inventory.at(key).job is None:
                self._known.pop(key, None)

    async def _reconcile(
        self, request: _Request, job: JobRecord, num_failures: int
    ) -> float | None:
        try:
            planned = await self._act(request, job)
        except (NotFound, Conflict):
            if self._inventory.at(request.key).job is None:
                return None
            raise
        except (RetryableError, Forbidden) as error:
            if num_failures >= _REPEATS:
                request.knowledge.error = Problem(ProblemType.RECONCILE_ERROR, str(error))
                await self._report(request, self._plan(request))
            raise
        reported = await self._report(request, planned)
        return self._seconds_until(planned.wake_at, reported)

    async def _act(self, request: _Request, job: JobRecord) -> Plan:
        await self._forget_what_is_gone(request.knowledge, job.key.namespace)
        planned = self._plan(request)
        if not planned.actions and not _ends(job, planned):
            request.knowledge.error, request.knowledge.made = None, True
            return planned
        if _needs_fresh_lists(request, job, planned):
            job = await self._read_again(job)
            await self._relist(job.key, job.uid)
            planned = self._plan(request)
        if _ends(job, planned):
            job = await self._record_end(request, job, planned)
        context = desired.of(job, self._config).context
        actor = Actor(
            self._client, self._inventory, self._trust, context, request.knowledge, self._clock
        )
        await actor.perform(job, planned.actions)
        request.knowledge.error = None
        return await self._converged(request)

    async def _record_end(self, request: _Request, job: JobRecord, planned: Plan) -> JobRecord:
        """Write how the job ended before anything is stopped: whoever comes after must know it.

        Returns the job as it is then. Raises NotFound, Conflict or NotConverged if it could not.
        """
        await self._report(request, planned)
        written = self._inventory.at(request.key).job
        if written is None or written.outcome is None:
            await self._read_again(job)
            message = "how the job ended could not be written"
            raise NotConverged(message)
        found, about = written.outcome, {"namespace": job.key.namespace, "job": job.key.name}
        words = (found.phase.value, found.reason, found.message)
        LOG.info("%s: ended as %s, %s: %s", job.key, *words, extra=about)
        return written

    async def _forget_what_is_gone(self, known: Knowledge, namespace: str) -> None:
        """Ask whether what stood in the way still does: making the rest to find out would run."""
        still = []
        for each in known.in_the_way:
            with suppress(NotFound):
                found = await self._client.get(each.kind, namespace, each.name)
                if found["metadata"]["uid"] == each.uid:
                    still.append(each)
        known.in_the_way = tuple(still)

    async def _converged(self, request: _Request) -> Plan:
        """The plan after all was done, which asks for nothing. Raises NotConverged if it does."""
        after = self._plan(request)
        request.knowledge.made = request.knowledge.made or not _makes_something(after)
        if after.actions == (DeleteJob(),):
            # Its time after the end passed meanwhile: nobody undid anything.
            return replace(after, wake_at=self._clock())
        if after.actions:
            await self._report(request, after)
            names = ", ".join(sorted({type(action).__name__ for action in after.actions}))
            message = f"still to be done after doing it: {names}"
            raise NotConverged(message)
        return after

    async def _read_again(self, job: JobRecord) -> JobRecord:
        """The job as it is now. Raises NotFound, or Conflict, if it is another one."""
        found = await act.read_again(self._client, self._inventory, job)
        if found.uid != job.uid:
            # What is known and planned is about the one before it.
            message = f"{job.key} is another job by now: its uid is {found.uid}, not {job.uid}"
            raise Conflict(message)
        return found

    def _begin(self, job: JobRecord) -> Knowledge:
        known = self._known.get(job.key)
        if known is None or known.uid != job.uid:
            signs_by = certificates.fingerprint(self._trust(job.uid).authority)
            known = self._known[job.key] = Knowledge(job.uid, signs_by)
        known.begin(job.generation)
        return known

    def _plan(self, request: _Request) -> Plan:
        common = self._inventory.at(request.key.common).children
        observed = replace(self._inventory.at(request.key), common=frozenset(common))
        known, children = request.knowledge, observed.children.values()
        known.lacks = missing_pods.lacks(children, known.lacks, self._clock())
        return plan.make(observed, request.knowledge, self._config, self._clock())

    async def _report(self, request: _Request, planned: Plan) -> datetime | None:
        """Write the status if it changed; returns when to come back because of it, if at all."""
        job, known, now = self._inventory.at(request.key).job, request.knowledge, self._clock()
        status = planned.status
        if job is None or status is None:
            return None
        before = job.status
        if known.has_reported(status, before):
            return None
        due = (
            throttle.due_at(before, status, known.reported_at, now)
            if before
            else throttle.first_due_at(status, job.created, now, crowded=request.crowded)
        )
        if due > now:
            return due
        for event in events.of(job, status, now, planned.warnings):
            # A write of the status that fails is tried again, and its Events are recorded once.
            name = event["metadata"]["name"]
            if name not in known.recorded:
                await events.record(self._client, event)
                known.recorded.add(name)
        written = await self._write(job, known, status)
        # What else is new in the answer no watch tells any more: by then it is known.
        return None if written is None or written.asks_the_same(job) else self._clock()

    async def _write(
        self, job: JobRecord, known: Knowledge, status: dict[str, Any]
    ) -> JobRecord | None:
        """Write the status; returns the job as it is then, None if it is gone."""
        try:
            answer = await self._client.apply(Kind.DistTrainJob, _patch(job, status), "/status")
        except (NotFound, Conflict):
            return None
        # Not before: a write that failed is tried again, and counts once.
        measure(job, status, self._clock())
        record = parsing.job(answer, report.FIELDS)
        self._inventory.put(record)
        known.reported_at = self._clock()
        known.recorded.clear()
        # Kept only where they differ: two statuses of each job would be most of the memory.
        known.reported = None if record.status == status else (status, record.status)
        return record

    def _seconds_until(self, *instants: datetime | None) -> float | None:
        first = min((instant for instant in instants if instant is not None), default=None)
        return None if first is None else (first - self._clock()).total_seconds()


def _ends(job: JobRecord, planned: Plan) -> bool:
    """Whether the job has ended, and its status does not say so yet."""
    return planned.outcome is not None and job.outcome is None


def _needs_fresh_lists(request: _Request, job: JobRecord, planned: Plan) -> bool:
    """Whether something final rests on what was not seen, which watches may tell late."""
    guesses = outcome.is_guess(planned.outcome) and _ends(job, planned)
    # Of a Job that seems to have no pod one may just have been made.
    renews = any(isinstance(action, Renew) for action in planned.actions)
    # A job is deleted before its children are, but watches may tell it the other way.
    return guesses or renews or (request.knowledge.made and _makes_something(planned))


def _makes_something(planned: Plan) -> bool:
    return any(isinstance(action, Create) for action in planned.actions)


def _patch(job: JobRecord, status: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": job.key.name, "namespace": job.key.namespace, "uid": job.uid}
    return {**Kind.DistTrainJob.header, "metadata": metadata, "status": status}


def measure(job: JobRecord, status: dict[str, Any], now: datetime) -> None:
    """Count what is new in a status; called once for each that is written."""
    before, phase = job.status, status.get("phase")
    if before.get("phase") is None:
        metrics.JOBS_ACCEPTED.labels(job.key.namespace).inc()
    if phase in _ENDED_PHASES and before.get("phase") not in _ENDED_PHASES:
        metrics.JOBS_ENDED.labels(job.key.namespace, phase).inc()
        metrics.JOB_SECONDS.labels(phase).observe((now - job.created).total_seconds())
    if before.get("phase") in {None, Phase.PENDING} and phase == Phase.RUNNING:
        metrics.STARTING_SECONDS.observe((now - job.created).total_seconds())
    known = before.get("failures")
    for failure in status.get("failures", []):
        if not isinstance(known, list) or failure not in known:
            metrics.RESTARTS.labels(failure["role"], failure.get("reason", "")).inc()
