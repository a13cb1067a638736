"""What a run left behind, parsed: all that the checks may look at. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from disttrain.coordinator.phases import INCARNATIONS_PER_RUN
from disttrain.job import names
from disttrain.parameter_server import ledger as shard_ledger
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.replica import ledger as replica_ledger
from disttrain.state.placement import TRAINED
from disttrain.telemetry import folding, record_file
from disttrain.telemetry.folding import Shape

Records = NDArray[np.void]
"""Of `parameter_server.ledger.RECORD` or `replica.ledger.RECORD`."""


class _Section(BaseModel):
    """Of summary.json: the fields that are checked."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class BatchSummary(_Section):
    """What is said of a batch method."""

    warm_start_samples: int | None


class Summary(_Section):
    """What is said of a job."""

    phase: str
    samples: int
    epochs: int
    restarts: dict[str, int]
    samples_repeated: int
    samples_partially_applied: int
    partial_chunks: int
    updates_lost: int
    updates_lost_by_sender: dict[str, int]
    updates_lost_is_exact: bool = True
    """Else the counts say how many at least."""
    non_finite_gradients: int
    non_finite_gradients_by_replica: dict[str, int]
    resumed_from: str | None
    sandblaster: BatchSummary | None = None

    @property
    def samples_by_updates(self) -> int:
        """Samples processed as Downpour does; of a batch method those of its warm start."""
        limit = None if self.sandblaster is None else self.sandblaster.warm_start_samples
        return self.samples if limit is None else min(limit, self.samples)


@dataclass(frozen=True, kw_only=True, slots=True)
class Incarnation:
    """The log of one incarnation of a shard or a replica."""

    process: str
    """"shard-0", "replica-2"."""
    index: int
    incarnation: int
    records: Records
    ends_in_half: bool = False
    """The last record is not whole."""
    shards: tuple[frozenset[int], ...] = ()
    """Those that have answered each of a replica's processes, where it has several."""

    @property
    def name(self) -> str:
        return f"{self.process} (incarnation {self.incarnation})"

    @property
    def file(self) -> str:
        return record_file.path_of(Path(), self.process, self.incarnation).name

    @property
    def sender(self) -> SenderIncarnation:
        """A replica, as shards name it."""
        return SenderIncarnation(self.index, self.incarnation)

    @property
    def is_shard(self) -> bool:
        return self.records.dtype == shard_ledger.RECORD

    @property
    def run(self) -> int:
        """0 for the first run in the folder; each `resume` begins another one."""
        return self.incarnation // INCARNATIONS_PER_RUN

    @property
    def missing(self) -> int:
        """Records that a full disk refused."""
        kind = shard_ledger.Kind.MISSING if self.is_shard else replica_ledger.Kind.MISSING
        return int(self.of(kind)["samples"].sum())

    @property
    def folded(self) -> Records:
        """What stands for many updates, or answers."""
        return self.of(self.shape.folded)

    def of(self, *kinds: int) -> Records:
        found: Records = self.records[np.isin(self.records["kind"], kinds)]
        return found

    def each(self) -> Records:
        """PUSHED of a shard, ACKNOWLEDGED of a replica: also one for each that is folded.

        Of those the numbers are true, the versions are the fold's last, and so are all times but
        the first; the last has all samples.
        """
        return folding.unfold(self.of(self.shape.one, self.shape.folded), self.shape)

    @property
    def shape(self) -> Shape:
        return shard_ledger.PUSHES if self.is_shard else replica_ledger.ANSWERS


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedCheckpoint:
    """A checkpoint after reading all of its files."""

    number: int
    versions: Mapping[int, int]
    """Updates applied, by shard."""
    damage: str = ""
    """Why it cannot be used."""
    not_finite: tuple[str, ...] = ()
    """Vectors that hold values that are not finite."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Everything about one run folder."""

    record: bool
    """Chunks, steps and fetches were logged, too."""
    shards: Mapping[int, tuple[Incarnation, ...]]
    """Incarnations by increasing incarnation, by index."""
    replicas: Mapping[int, tuple[Incarnation, ...]]
    joiners_from: int | None = None
    """From this index on, replicas keep their logs on other machines; None: nobody was invited."""
    is_running: bool = False
    """The run went on while its logs were read: replicas' first, then shards'."""
    pushes_seldom: bool = False
    """Whether replicas take many steps between two pushes."""
    fetched_vectors: frozenset[int] = frozenset({TRAINED})
    """Numbers of what replicas compute with, or measure; they are all as long."""
    batch_method: bool = False
    """The strategy is sandblaster: shards add up the gradients of whole batches."""
    warm_start: bool = False
    """Before that, they apply updates as Downpour does."""
    batch_is_everything: bool = True
    """Each of these batches has all samples of the training data."""
    summary: Summary | None = None
    train_samples: int | None = None
    """Size of the training data."""
    checkpoints: tuple[SavedCheckpoint, ...] = ()
    has_trained: bool = True
    """In the last run all shards had told what they hold, and training began."""
    last_sign_ns: int = 0
    """When the coordinator last wrote how the job is; 0 is unknown."""
    unreadable: tuple[str, ...] = field(default=())
    """Files that could not be understood."""

    @property
    def shard_incarnations(self) -> Iterator[Incarnation]:
        return (
            incarnation for incarnations in self.shards.values() for incarnation in incarnations
        )

    @property
    def replica_incarnations(self) -> Iterator[Incarnation]:
        return (
            incarnation for incarnations in self.replicas.values() for incarnation in incarnations
        )

    @property
    def folded(self) -> int:
        """Records of updates and answers that stand for many."""
        return sum(
            len(incarnation.folded)
            for incarnation in (*self.shard_incarnations, *self.replica_incarnations)
        )

    @property
    def is_complete(self) -> bool:
        return self.summary is not None and self.summary.phase == "Complete"

    @property
    def last_run(self) -> int:
        return max((incarnation.run for incarnation in self.shard_incarnations), default=0)


def by_sender(records: Records) -> dict[SenderIncarnation, Records]:
    keys = records["sender"].astype(np.uint64) << np.uint64(32) | records["incarnation"]
    return {
        SenderIncarnation(int(key) >> 32, int(key) & 0xFFFFFFFF): records[keys == key]
        for key in np.unique(keys)
    }


def name_of(sender: SenderIncarnation) -> str:
    return f"{names.replica_name(sender.sender)} (incarnation {sender.incarnation})"


def sequences(records: Records, column: str = "sequence") -> set[int]:
    return set(records[column].tolist())
