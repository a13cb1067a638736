"""Any number of jobs that all are as one is, told as an API server tells them, for benchmarks."""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from builders import many_jobs
from builders.fake_cluster import World
from builders.operator_in_memory import OperatorInMemory
from disttrain_operator import settings
from disttrain_operator.kinds import WORKLOADS, Kind
from disttrain_operator.manifests import stored
from disttrain_operator.observed import parsing
from disttrain_operator.observed.records import JobKey
from disttrain_operator.observed.watched import KINDS, STATELESS
from disttrain_operator.reconcile import desired

PLACE = "xxxxxx"
"""Stands in names and uids for a job's number."""
KEY = JobKey(many_jobs.SPACE, f"job-{PLACE}")
COMPLETE = json.dumps({"phase": "Complete", "reason": "EpochsDone", "message": "1 epoch"})
CONFIG = settings.read({}).manifests
TOLD = frozenset(KINDS)
"""Kinds of what jobs have."""
_HISTORY_ENTRIES = 80
"""Who wrote which field takes about 4.5 KB of a pod, and as much of a workload."""
_MARK = "objects here"
_JOB = 1
"""The first object of a world."""


@dataclass(frozen=True, slots=True)
class Template:
    """One object of a job, as text."""

    kind: Kind
    text: str
    is_shared: bool
    """One for all jobs."""

    def of(self, number: int, objects: str) -> str:
        """The same object of another job, whose objects are packed in a text."""
        return self.text.replace(PLACE, f"{number:06d}").replace(_MARK, objects)


class StandingJobs:
    """So many jobs; nothing ever happens to them."""

    def __init__(self, number: int, *, ended: bool) -> None:
        templates = [_template(kind, body) for (kind, *_), body in _one_job(ended=ended).items()]
        self.number = number
        self._templates = {kind: [each for each in templates if each.kind is kind] for kind in TOLD}
        self._objects = [_objects(each) for each in range(number)]

    def __len__(self) -> int:
        templates = [each for of_kind in self._templates.values() for each in of_kind]
        return sum(1 if each.is_shared else self.number for each in templates)

    def some(self, kind: Kind, begin: int, end: int) -> Iterator[str]:
        """The objects of a kind of some jobs, as JSON."""
        for number in range(begin, min(end, self.number)):
            for template in self._templates[kind]:
                if number == 0 or not template.is_shared:
                    yield template.of(number, self._objects[number])


def _objects(number: int) -> str:
    name = KEY.name.replace(PLACE, f"{number:06d}")
    uid = _uid(_JOB).replace(PLACE, f"{number:06d}")
    body = many_jobs.job(name)
    body["metadata"]["uid"] = uid
    return desired.rendered(parsing.job(body, frozenset()), CONFIG)


def _one_job(*, ended: bool) -> dict[tuple[Kind, str, str], dict[str, Any]]:
    """The objects of one job, after an operator has looked at it until nothing is left to do."""
    world = World()
    body = many_jobs.job(KEY.name)
    world.create(Kind.DistTrainJob, {"metadata": body["metadata"], "spec": body["spec"]})
    _look(world)
    world.run_controllers()
    _look(world)
    if ended:
        world.finish_coordinators(COMPLETE)
        _look(world)
        world.run_controllers()
        _look(world)
    return {key: found for key, found in world.objects.items() if key[0] in TOLD}


def _look(world: World) -> None:
    operator = OperatorInMemory(world, config=CONFIG)
    operator.see_everything()
    asyncio.run(operator.reconciler.look(KEY, 0))


def _template(kind: Kind, body: dict[str, Any]) -> Template:
    metadata = {**body["metadata"], "managedFields": _history(kind)}
    if stored.OBJECTS in metadata.get("annotations", {}):
        metadata["annotations"] = {**metadata["annotations"], stored.OBJECTS: _MARK}
    # Each job has an authority of its own; as of an operator of before it, none is known.
    metadata.get("annotations", {}).pop(stored.AUTHORITY, None)
    whole = {"metadata": metadata} if kind in STATELESS else {**body, "metadata": metadata}
    text = json.dumps(whole, separators=(",", ":"))
    text = re.sub(r"uid-(\d+)-[A-Za-z]+", lambda found: _uid(int(found[1])), text)
    return Template(kind, text, is_shared=PLACE not in metadata["name"])


def _uid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000{PLACE}"


def _history(kind: Kind) -> list[dict[str, Any]]:
    entries = _HISTORY_ENTRIES if kind in {*WORKLOADS, Kind.Pod} else _HISTORY_ENTRIES // 2
    nothing: dict[str, Any] = {}
    fields = {f"f:field{each}": {"f:name": nothing, "f:value": nothing} for each in range(entries)}
    return [{"manager": "somebody", "operation": "Update", "fieldsV1": fields}]
