"""Everything that was seen of all jobs, by job, and what an observation changes.

Pure; not for several threads.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import Final

from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.children import ChildKey
from disttrain_operator.observed.records import ChildRecord, JobKey, JobRecord, Outcome, PodRecord

MOST_DEATHS = 10
"""Deaths that are kept of a pod: a status tells no more of them."""

Record = JobRecord | ChildRecord | PodRecord

_NUMBERS: Final = frozenset({"ready", "remaining"})
_BEGINNING: Final = frozenset({"ready", "phase", "waiting", "detail", "unschedulable"})


class Change(Enum):
    """How much an observation changes."""

    NOTHING = "nothing"
    """But perhaps the version."""
    NUMBERS = "numbers"
    """How many pods are there and ready, or how far they have come: only the status tells it."""
    DECISIVE = "decisive"
    """Something may have to be done."""

    def debounce(self, job: JobRecord | None) -> timedelta | None:
        """The wait before a look; None for no need. `job` is None where only leftovers are."""
        if job is None or self is Change.NOTHING:
            return None
        # Of a job that has ended only the numbers change, as its pods go one by one.
        return _DEBOUNCE[Change.NUMBERS if job.outcome is not None else self]


_DEBOUNCE: Final = {Change.DECISIVE: timedelta(seconds=1), Change.NUMBERS: timedelta(seconds=3)}
"""Events of a job's objects come in bursts; one look, and one status, answers them all."""


def compare(old: Record | None, new: Record) -> Change:
    """What changed; `old` is None for an object that was not known."""
    if isinstance(new, PodRecord) and _begins(new) and (old is None or old.uid != new.uid):
        return Change.NUMBERS
    if old is None:
        return Change.DECISIVE
    changed = {name for name in new.__slots__ if getattr(old, name) != getattr(new, name)}
    changed.discard("version")
    if not changed:
        return Change.NOTHING
    return Change.NUMBERS if _only_numbers(changed, new) else Change.DECISIVE


def _only_numbers(changed: set[str], new: Record) -> bool:
    if isinstance(new, PodRecord):
        return changed <= _BEGINNING and _begins(new)
    # A Job's numbers tell whether a coordinator is there, for which others wait.
    return isinstance(new, ChildRecord) and new.kind is not Kind.Job and changed <= _NUMBERS


def _begins(pod: PodRecord) -> bool:
    return pod.phase in {"", "Pending", "Running"} and pod.gone_at is None and pod.death is None


@dataclass(slots=True)
class Observed:
    """What was seen at one job's place: it, its children, its pods, and those of one before it."""

    job: JobRecord | None = None
    children: dict[ChildKey, ChildRecord] = field(default_factory=dict)
    pods: dict[str, PodRecord] = field(default_factory=dict)
    common: frozenset[ChildKey] = frozenset()
    """What is there of the objects that all jobs of the namespace share."""
    decided: dict[str, Outcome] = field(default_factory=dict)
    """What coordinators decided whose pods are gone, by the uid of their job."""

    def of_kind(self, kind: Kind) -> list[Record]:
        if kind is Kind.DistTrainJob:
            return [] if self.job is None else [self.job]
        if kind is Kind.Pod:
            return list(self.pods.values())
        return [child for child in self.children.values() if child.kind is kind]

    def pods_of(self, job: JobRecord) -> list[PodRecord]:
        """The pods of this job, without those of another one that had its name before."""
        return [pod for pod in self.pods.values() if pod.owner_uid == job.uid]

    def children_of(
        self, job: JobRecord, kinds: Container[Kind] = frozenset(Kind)
    ) -> list[ChildRecord]:
        """The children of this job, likewise."""
        children = self.children.values()
        return [each for each in children if each.kind in kinds and each.owner_uid == job.uid]

    def keepers_of(self, job: JobRecord, role: Role) -> list[ChildRecord]:
        """What makes the pods of a role of this job."""
        return [child for child in self.children_of(job) if child.role is role]

    def find(self, kind: Kind, name: str) -> Record | None:
        if kind is Kind.DistTrainJob:
            return self.job
        return self.pods.get(name) if kind is Kind.Pod else self.children.get((kind, name))

    def keep(self, record: Record) -> None:
        if isinstance(record, PodRecord):
            self.pods[record.name] = record
        elif isinstance(record, ChildRecord):
            self.children[record.kind, record.name] = record
        else:
            if self.job is None or self.job.uid != record.uid:
                # A volume that is kept keeps the place through all jobs of one name.
                self.decided = {uid: end for uid, end in self.decided.items() if uid == record.uid}
            self.job = record

    def forget(self, record: Record) -> None:
        if isinstance(record, PodRecord):
            del self.pods[record.name]
            if record.outcome is not None:
                self.decided[record.owner_uid] = record.outcome
        elif isinstance(record, ChildRecord):
            del self.children[record.kind, record.name]
        else:
            self.job = None

    @property
    def is_empty(self) -> bool:
        return self.job is None and not self.children and not self.pods


class Inventory:
    """Records by job. An older observation of an object never replaces a newer one.

    Versions are compared as numbers, which Kubernetes allows for objects of one kind.
    """

    def __init__(self) -> None:
        self._places: dict[JobKey, Observed] = {}

    def __len__(self) -> int:
        return len(self._places)

    def places(self) -> Iterator[JobKey]:
        """The places, fixed at the time of the call."""
        return iter(tuple(self._places))

    def at(self, key: JobKey) -> Observed:
        """What was seen at a place; not to be changed."""
        return self._places.get(key) or Observed()

    def put(self, record: Record) -> Change:
        """Keep an observation of an object; returns what changed."""
        place = self._places.setdefault(record.job, Observed())
        old = place.find(record.kind, record.name)
        if _is_newer(old, record):
            return Change.NOTHING
        if isinstance(old, PodRecord) and isinstance(record, PodRecord):
            record = _remembering(old, record)
        place.keep(record)
        return compare(old, record)

    def drop(self, record: Record) -> None:
        """Forget an object that is gone, unless another is at its place already."""
        self.drop_at(record.job, (record.kind, record.name), record.uid)

    def drop_at(self, key: JobKey, child: ChildKey, uid: str) -> bool:
        """The same for one of which no more is known; returns whether it was there."""
        place = self.at(key)
        found = place.find(*child)
        if found is None or found.uid != uid:
            return False
        place.forget(found)
        if place.is_empty:
            del self._places[key]
        return True

    def versions(self, kind: Kind, namespace: str | None = None) -> dict[str, int]:
        """The versions of all objects of a kind by their uids, in a namespace or everywhere."""
        places = (
            place for key, place in self._places.items() if namespace in {None, key.namespace}
        )
        return {record.uid: record.version for each in places for record in each.of_kind(kind)}

    def forget_versions(self, kind: Kind) -> None:
        """Take the next observation of every object of a kind, whatever its version."""
        for place in self._places.values():
            for record in place.of_kind(kind):
                place.keep(replace(record, version=0))

    def drop_all(self, kind: Kind, gone: set[str]) -> list[JobKey]:
        """Forget objects by their uids; returns whose they were."""
        records = (each for place in self._places.values() for each in place.of_kind(kind))
        lost = [record for record in records if record.uid in gone] if gone else []
        for record in lost:
            self.drop(record)
        return list(dict.fromkeys(record.job for record in lost))


def _is_newer(old: Record | None, new: Record) -> bool:
    """Whether an observation of an object is newer than another one that comes after it."""
    return old is not None and old.uid == new.uid and old.version > new.version


def _remembering(old: PodRecord | None, new: PodRecord) -> PodRecord:
    """The new observation of a pod, which has its last deaths alone, with those before them."""
    if old is None or old.uid != new.uid:
        return new
    # Of one that is told again more may be known by now: that there was no memory, for example.
    known = {(each.time, each.exit_code): each for each in (*old.deaths, *new.deaths)}
    if new.death is not None:
        del known[new.death.time, new.death.exit_code]
    return replace(new, earlier=tuple(known.values())[-MOST_DEATHS:])
