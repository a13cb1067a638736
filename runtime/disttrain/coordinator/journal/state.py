"""Everything the coordinator knows that must survive it.

The fold of its journal, and the ledger of a checkpoint.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field, TypeAdapter

from disttrain.coordinator.journal.batch_state import Batch, worker
from disttrain.coordinator.journal.group import Group
from disttrain.coordinator.journal.totals import Extremes, Totals
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.phases import Phase, StopReason
from disttrain.coordinator.protocol.commands import Admit, Command, ShardWritten
from disttrain.coordinator.protocol.content import Content
from disttrain.coordinator.protocol.fields import Count, MemberId, Position, Strict
from disttrain.job import names
from disttrain.state.layout import ModelLayout
from disttrain.state.placement import Placement
from disttrain.transport.header import Role

_CLOSING = frozenset({Phase.DRAINING, Phase.CHECKPOINTING, Phase.EXPORTING, Phase.EVALUATING})


@dataclass(kw_only=True, slots=True)
class Fencing(Strict):
    """A dead replica whose last position is being asked from the shards."""

    index: int
    incarnation: int
    waiting: list[int]
    """Shards that have not answered."""
    lowest: Position | None = None
    highest: Position | None = None
    partial_chunks: int = 0
    samples: Count = 0
    """Of it that are accounted for before the last shard has answered."""

    @property
    def member(self) -> MemberId:
        return MemberId(role=Role.REPLICA, index=self.index, incarnation=self.incarnation)


@dataclass(kw_only=True, slots=True)
class IssuedCommand(Strict):
    """A command without an answer."""

    id: int
    member: MemberId
    order: Command
    shards: dict[int, int] = field(default_factory=dict)
    """Upload: the incarnations of the shards it is for."""


@dataclass(kw_only=True, slots=True)
class OpenCheckpoint(Strict):
    """A checkpoint in progress."""

    number: int
    began: float
    samples: int = 0
    """Processed when it was begun."""
    parts: dict[int, ShardWritten] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True)
class Saved(Strict):
    """What is known of the latest complete checkpoint."""

    number: int
    time: float
    """When it was begun; seconds of the coordinator's clock."""
    samples: int
    versions: dict[int, int]
    """Of the shards, by index."""


@dataclass(kw_only=True, slots=True)
class Evaluation(Strict):
    """The outcome of one evaluation."""

    epoch: int
    """Epochs completed at its start."""
    samples: int
    """Samples processed at its start: those that its parameters had seen."""
    seconds: float
    """From the job's beginning to its end."""
    loss: float | None
    measures: dict[str, float]
    final: bool = False
    """Of exactly the model with which the job ends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Improvement(Strict):
    """The best value that evaluations have found, for a job that stops by patience."""

    name: str
    """Of the measure; empty: of the loss."""
    best: float | None = None
    """None: no evaluation has given a number."""
    evaluations: int = 0
    """Those since that have not improved it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BestModel(Strict):
    """What the model measured that is kept as the best one."""

    name: str
    """Of the measure; empty: of the loss."""
    value: float
    samples: int
    """Processed at the evaluation's start."""


@dataclass(kw_only=True, slots=True)
class WarmStart(Strict):
    """Of a batch method."""

    samples: int | None = None
    """How many are wanted; None: there is no warm start."""
    ended: bool = False
    """No more work of it is given out."""
    cut: int | None = None
    """Everything is drained; the first checkpoint of this number or more is where it ends."""


@dataclass(kw_only=True, slots=True)
class State(Strict):
    """The whole. Only `apply` of an entry changes it."""

    job_uid: str = ""
    """Whose journal this is."""
    incarnation: int = 1
    """Incarnation of the coordinator."""
    phase: Phase = Phase.WAITING
    reason: str = ""
    message: str = ""
    stopping: bool = False
    """Ends as Stopped."""
    elapsed: float = 0.0
    """Seconds of training before `began`: of the runs that this one resumes."""
    began: float | None = None
    """When training began; seconds of the coordinator's clock."""
    ended: float | None = None
    ledger_time: float | None = None
    """When this snapshot was taken; in a checkpoint's ledger."""
    test_samples: int = 0
    layout: ModelLayout | None = None
    may_be_divided_anew: Annotated[bool, Field(exclude_if=lambda may: not may)] = False
    """Replicas of the run that goes on by this state have not told how they divide the model."""
    content: Content = ()
    """Examples of the data of the job's own replicas, of a run that strangers may join."""
    placement: Placement | None = None
    """None before the layout is known, and in ledgers of older versions."""
    data: DataLedger = field(default_factory=DataLedger)
    warm_start: WarmStart = field(default_factory=WarmStart)
    """Of a batch method, if it has one."""
    batch: Batch | None = None
    """Of a batch method, once it has begun."""
    replicas: dict[int, Group] = field(default_factory=dict)
    shards: dict[int, Group] = field(default_factory=dict)
    replicas_epoch: int = 0
    """Grows with each replica that joins or ends, and with each incarnation of the coordinator."""
    shards_epoch: int = 0
    """The same of the shards."""
    incarnations: dict[str, int] = field(default_factory=dict)
    """The highest given, by the name of the group."""
    old_instances: list[str] = field(default_factory=list)
    """Replaced incarnations, the latest ones: a late copy of their join must not replace a newer
    incarnation."""
    removed: Annotated[list[str], Field(exclude_if=lambda places: not places)] = field(
        default_factory=list
    )
    """Places of joiners that may never be members again."""
    fencings: list[Fencing] = field(default_factory=list)
    orders: dict[int, IssuedCommand] = field(default_factory=dict)
    next_order: int = 1
    checkpoint: OpenCheckpoint | None = None
    next_checkpoint: int = 1
    last_checkpoint: int | None = None
    saved: Saved | None = None
    """The same checkpoint, if this or an earlier incarnation of this job's coordinator saw it
    made."""
    checkpoint_tried: float | None = None
    evaluations: list[Evaluation] = field(default_factory=list)
    """The latest ones."""
    best: dict[str, Extremes] = field(default_factory=dict)
    """Over all evaluations, by measure."""
    improvement: Improvement | None = None
    """None before the first evaluation, and of jobs that do not stop by patience."""
    best_model: BestModel | None = None
    """None: none is kept."""
    final_checkpoint: int = 0
    """The first number that may be the last checkpoint."""
    final_failures: int = 0
    """Attempts at the last checkpoint that failed."""
    checkpoint_failure: str = ""
    """Why the latest checkpoint failed; empty if it did not."""
    evaluation_tried: float | None = None
    evaluated_epoch: int = 0
    evaluating: bool = False
    """An evaluation was begun and not answered, whoever does it."""
    evaluating_samples: int = 0
    """Processed when the latest evaluation was begun."""
    totals: Totals = field(default_factory=Totals)
    resumed_from: str = ""
    first_incarnation: int = 0
    """Incarnations up to this number belong to the run that this one resumes."""
    resumed_lives: dict[str, Count] = field(default_factory=dict)
    """The latest incarnation of each process, by name, that had joined when the ledger was
    taken."""
    resumed_samples: dict[str, Count] = field(default_factory=dict)
    """Samples per replica incarnation that the ledger or a restored shard holds: see
    `count_resumed`."""

    @property
    def may_go_on(self) -> bool:
        """The job closes because a target seems reached; if the exported model misses it, not.

        Replicas are not drained for good, they only get no work.
        """
        for_target = self.reason == StopReason.TARGET_METRIC
        return for_target and self.phase in _CLOSING and not self.stopping

    def awaits_division(self, partitions: int) -> bool:
        """Whether the layout is that of the run before, and replicas of these may have another."""
        is_of_several = partitions > 1 or (self.layout is not None and self.layout.partitions > 1)
        return self.may_be_divided_anew and is_of_several

    @property
    def samples(self) -> int:
        return self.data.samples_done + self.data.samples_outside

    @property
    def num_live_replicas(self) -> int:
        return sum(replica.takes_part for replica in self.replicas.values())

    def seconds(self, now: float) -> float:
        """Of training, the runs that this one resumes included."""
        if self.began is None:
            return self.elapsed
        return self.elapsed + (self.ended or now) - self.began

    def groups(self, role: Role) -> dict[int, Group]:
        """The replicas or the shards, by index, each in its latest incarnation."""
        return self.replicas if role is Role.REPLICA else self.shards

    def group(self, member: MemberId) -> Group | None:
        """The member's group, if this incarnation is its latest one."""
        found = self.groups(member.role).get(member.index)
        return found if found is not None and found.incarnation == member.incarnation else None

    def members_changed(self, role: Role) -> None:
        if role is Role.REPLICA:
            self.replicas_epoch += 1
        else:
            self.shards_epoch += 1

    def count_own_data(self, found: Group, samples: int) -> None:
        """A replica has processed so many; those of a loop's own data are in no lease."""
        more = samples - found.progress.samples
        if found.own_data and more > 0:
            self.data.samples_outside += more
            found.progress = replace(found.progress, samples=samples)

    def count_resumed(self, index: int, incarnation: int, samples: int) -> int:
        """An incarnation of the run before had processed so many; how many of them are news.

        Of one that ended before the ledger was taken none are: the ledger has all that it did.
        """
        key = f"{index}.{incarnation}"
        has_joined = incarnation <= self.resumed_lives.get(names.replica_name(index), 0)
        if has_joined and key not in self.resumed_samples:
            return 0
        more = max(0, samples - self.resumed_samples.get(key, 0))
        self.resumed_samples[key] = self.resumed_samples.get(key, 0) + more
        return more

    @contextmanager
    def changing_batch(self) -> Iterator[Batch]:
        """Around a change of the batch method, after which its work is counted again."""
        if self.batch is None:
            message = "there is no run of a batch method yet"
            raise AssertionError(message)
        with self.batch.changing(self.data):
            yield self.batch

    def drop_groups(self, replica: MemberId) -> None:
        if self.batch is not None:
            with self.changing_batch() as batch:
                batch.driver.lost(batch.course, worker(replica))

    @property
    def latest_time(self) -> float:
        """The latest moment that is in it, by the clocks of all incarnations until now."""
        moments = (
            self.began, self.ended, self.ledger_time, self.checkpoint_tried, self.evaluation_tried,
            *(group.joined for group in (*self.replicas.values(), *self.shards.values())),
        )  # fmt: skip
        return max((moment for moment in moments if moment is not None), default=0.0)

    def non_finite(self) -> int:
        return sum(self.non_finite_by_name().values())

    def non_finite_by_name(self) -> dict[str, int]:
        """The same by replica, those without any left out."""
        found = dict(self.totals.non_finite)
        for group in self.replicas.values():
            if group.non_finite:
                key = group.name
                found[key] = found.get(key, 0) + group.non_finite
        return found


_STATE = TypeAdapter(State)


def to_json(state: State) -> bytes:
    """The state as JSON: the first line of a journal file, and coordinator.json of a checkpoint."""
    return _STATE.dump_json(state)


def from_json(content: bytes) -> State:
    """The state again; raises pydantic's ValidationError."""
    found = _STATE.validate_json(content, strict=True)
    found.orders = {
        number: issued
        for number, issued in found.orders.items()
        if not isinstance(issued.order, Admit)
    }
    return found
