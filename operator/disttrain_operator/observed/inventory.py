"""Everything that was seen of all jobs, by job. Pure; not for several threads."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.children import ChildKey
from disttrain_operator.observed import news
from disttrain_operator.observed.news import News, Record
from disttrain_operator.observed.pods import remembering
from disttrain_operator.observed.records import ChildRecord, JobKey, JobRecord, Outcome, PodRecord


@dataclass(slots=True)
class Observed:
    """What was seen at one job's place: it, its children, its pods, and those of one before it."""

    job: JobRecord | None = None
    children: dict[ChildKey, ChildRecord] = field(default_factory=dict)
    pods: dict[str, PodRecord] = field(default_factory=dict)
    common: frozenset[ChildKey] = frozenset()
    """What is there of the objects that all jobs of the namespace share."""
    words: dict[str, Outcome] = field(default_factory=dict)
    """What coordinators decided whose pods are gone, by the uid of their job."""

    def of_kind(self, kind: Kind) -> list[Record]:
        if kind is Kind.DistTrainJob:
            return [] if self.job is None else [self.job]
        if kind is Kind.Pod:
            return list(self.pods.values())
        return [child for child in self.children.values() if child.kind is kind]

    def pods_of(self, job: JobRecord) -> list[PodRecord]:
        """The pods of this job, without those of another one that had its name before."""
        return [pod for pod in self.pods.values() if pod.job_uid == job.uid]

    @property
    def is_empty(self) -> bool:
        return self.job is None and not self.children and not self.pods


class Inventory:
    """Records by job. An older sight of an object never replaces a newer one.

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

    def put_job(self, record: JobRecord) -> News:
        """Keep a job; returns what is new of it."""
        place = self._place(record.key)
        old = place.job
        if _is_newer(old, record):
            return News.NOTHING
        place.job = record
        if old is None or old.uid != record.uid:
            # A volume that is kept keeps the place through all jobs of one name.
            place.words = {uid: said for uid, said in place.words.items() if uid == record.uid}
        return news.compare(old, record)

    def put_child(self, record: ChildRecord) -> News:
        """Keep a child; returns what is new of it."""
        children = self._place(record.job).children
        old = children.get((record.kind, record.name))
        if _is_newer(old, record):
            return News.NOTHING
        children[record.kind, record.name] = record
        return news.compare(old, record)

    def put_pod(self, record: PodRecord) -> News:
        """Keep a pod; returns what is new of it."""
        pods = self._place(record.job).pods
        old = pods.get(record.name)
        if _is_newer(old, record):
            return News.NOTHING
        pods[record.name] = remembering(old, record)
        return news.compare(old, pods[record.name])

    def drop_job(self, key: JobKey, uid: str) -> bool:
        """Forget a deleted job, unless another is at its place already."""
        place = self.at(key)
        if not _is(place.job, uid):
            return False
        place.job = None
        self._forget_if_empty(key)
        return True

    def drop_child(self, key: JobKey, child: ChildKey, uid: str) -> bool:
        """Forget a deleted child, unless another is at its place already."""
        children = self.at(key).children
        if not _is(children.get(child), uid):
            return False
        del children[child]
        self._forget_if_empty(key)
        return True

    def drop_pod(self, key: JobKey, name: str, uid: str) -> bool:
        """Forget a deleted pod, unless another has its name already."""
        place = self.at(key)
        found = place.pods.get(name)
        if found is None or found.uid != uid:
            return False
        del place.pods[name]
        if found.outcome is not None:
            place.words[found.job_uid] = found.outcome
        self._forget_if_empty(key)
        return True

    def versions(self, kind: Kind, namespace: str | None = None) -> dict[str, int]:
        """The versions of all objects of a kind by their uids, in a namespace or everywhere."""
        places = (
            place for key, place in self._places.items() if namespace in {None, key.namespace}
        )
        return {record.uid: record.version for each in places for record in each.of_kind(kind)}

    def forget_versions(self, kind: Kind) -> None:
        """Take the next sight of every object of a kind, whatever its version."""
        for place in self._places.values():
            if kind is Kind.DistTrainJob and place.job is not None:
                place.job = replace(place.job, version=0)
            elif kind is Kind.Pod:
                place.pods = {name: replace(pod, version=0) for name, pod in place.pods.items()}
            else:
                place.children = {
                    name: replace(child, version=0) if child.kind is kind else child
                    for name, child in place.children.items()
                }

    def drop_all(self, kind: Kind, gone: set[str]) -> list[JobKey]:
        """Forget objects by their uids; returns whose they were."""
        return [key for key in self.places() if self._drop_at(key, kind, gone)] if gone else []

    def _drop_at(self, key: JobKey, kind: Kind, gone: set[str]) -> bool:
        lost = [record for record in self._places[key].of_kind(kind) if record.uid in gone]
        for record in lost:
            if isinstance(record, JobRecord):
                self.drop_job(key, record.uid)
            elif isinstance(record, PodRecord):
                self.drop_pod(key, record.name, record.uid)
            else:
                self.drop_child(key, (kind, record.name), record.uid)
        return bool(lost)

    def _place(self, key: JobKey) -> Observed:
        return self._places.setdefault(key, Observed())

    def _forget_if_empty(self, key: JobKey) -> None:
        place = self._places.get(key)
        if place is not None and place.is_empty:
            del self._places[key]


def _is(record: Record | None, uid: str) -> bool:
    return record is not None and record.uid == uid


def _is_newer(old: Record | None, new: Record) -> bool:
    """Whether a sight of the same object is newer than another one that comes after it."""
    return old is not None and old.uid == new.uid and old.version > new.version
