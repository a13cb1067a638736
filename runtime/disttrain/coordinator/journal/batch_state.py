"""What the coordinator knows of a batch method."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

from disttrain.coordinator.journal import batch_rules
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.protocol.commands import Command, Decide, Perform
from disttrain.coordinator.protocol.fields import MemberId, Strict
from disttrain.job.strategies.sandblaster import Sandblaster
from disttrain.sandblaster.batch.driver import RUN_STATE_JSON, Driver, RunState, Stage
from disttrain.sandblaster.batch.groups import Worker

_MOST_EARLIER_SNAPSHOTS = 4
"""Each is kept in every ledger. Of older checkpoints few jobs keep any."""


def worker(member: MemberId) -> Worker:
    return Worker(member.index, member.incarnation)


def copied(run: RunState) -> RunState:
    """The same state, which changes no more when the first one does."""
    return RUN_STATE_JSON.read(RUN_STATE_JSON.write(run))


def _run(content: object) -> RunState:
    return content if isinstance(content, RunState) else RUN_STATE_JSON.read(str(content).encode())


def _text(run: RunState) -> str:
    return RUN_STATE_JSON.write(run).decode()


KeptRunState = Annotated[RunState, PlainSerializer(_text, str), PlainValidator(_run)]
"""A text within the JSON: so its infinities and its bits survive."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Before(Strict):
    """Work of the warm start, which counts, too."""

    epochs: int = 0
    samples: int = 0
    steps: int = 0
    portions: int = 0
    requeued: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot(Strict):
    """The run state at a checkpoint."""

    number: int
    course: KeptRunState


@dataclass(kw_only=True, slots=True)
class Batch(Strict):
    """One run of a batch method."""

    rules: Sandblaster
    groups: int
    """Of portions, in the data."""
    seed: int
    """Of the batches, if they are smaller than the data."""
    before: Before = Before()
    """What was done before it."""
    course: KeptRunState
    sent: bool = False
    """The command of the run was given to somebody, in this incarnation of the coordinator or
    before."""
    told: int = 0
    """Winners of the evaluation that the shards were told of."""
    cut: KeptRunState | None = None
    """As it was at the newest checkpoint of this run; None before the first."""
    cut_number: int | None = None
    """Of that checkpoint."""
    earlier: tuple[Snapshot, ...] = ()
    """Those before it, the newest last: for the case that it turns out to be damaged."""
    opened: KeptRunState | None = None
    """As it was at the checkpoint in progress."""
    returning: bool = False
    """All shards are going back to the snapshot."""
    entering: bool = False
    """And this for the first time, to where the warm start has ended."""
    returned: dict[int, int] = field(default_factory=dict)
    """Incarnations of the shards that are there, by index."""
    returns: int = 0
    """How often all went back to a snapshot."""
    changes: list[str] = field(default_factory=list)
    """Of the manifest, at resumes, and what came of each."""
    evaluated_iteration: int = 0
    """At the last evaluation on test data."""
    requeued: int = 0
    """Groups that came back without a result, in earlier evaluations."""
    copies: int = 0
    """Of groups that somebody else had begun, in earlier evaluations."""
    groups_done: int = 0
    """In earlier evaluations, dropped ones included."""
    samples_of_others: int = 0
    """Samples computed in evaluations that were dropped."""

    @property
    def groups_of_a_batch(self) -> int:
        """Of portions."""
        return self.rules.groups_of_a_batch or self.groups

    @property
    def driver(self) -> Driver:
        return batch_rules.driver(self.rules, self.groups, self.seed)

    @property
    def incarnations(self) -> tuple[int, ...]:
        """Incarnations of the shards that the run counts on."""
        return self.course.evaluation.shards

    @property
    def samples_dropped(self) -> int:
        """What is computed for nothing if the evaluation under way is dropped."""
        return 0 if self.course.evaluation.is_complete else self.samples_now

    @property
    def samples_now(self) -> int:
        return sum(winner.samples for winner in self.course.evaluation.winners.values())

    @property
    def all_requeued(self) -> int:
        return self.requeued + self.course.evaluation.requeued

    @property
    def all_groups_done(self) -> int:
        return self.groups_done + len(self.course.evaluation.winners)

    @property
    def all_copies(self) -> int:
        """Copies of groups that somebody else had begun."""
        return self.copies + self.course.evaluation.copies

    @contextmanager
    def changing(self, data: DataLedger) -> Iterator[None]:
        """Around a change of the run: what follows from it, also for the account of the data."""
        command, evaluation = self.course.order.number, self.course.evaluation
        yield
        if self.course.order.number != command:
            self.sent = False
        if self.course.evaluation is not evaluation:
            self.told = 0
            self.requeued += evaluation.requeued
            self.copies += evaluation.copies
            self.groups_done += len(evaluation.winners)
        self._count(data)

    def _count(self, data: DataLedger) -> None:
        """Passes over the data are those of the evaluations; a step is a portion."""
        run, before = self.course, self.before
        under_way = self.samples_now if run.stage is Stage.COMPUTING else 0
        portions = run.samples * data.portions // data.samples
        requeued = self.all_requeued * self.rules.push_every_portions
        data.epochs_done = before.epochs + run.samples // data.samples
        data.samples_done = before.samples + run.samples + under_way
        data.steps_done = before.steps + portions
        data.portions_done = before.portions + portions
        data.portions_requeued = before.requeued + requeued

    def give(self, command: Command) -> None:
        if isinstance(command, Perform):
            self.sent = True
        elif isinstance(command, Decide):
            self.told = len(self.course.evaluation.winners)

    def open_checkpoint(self) -> None:
        self.opened = copied(self.course)

    def end_checkpoint(self, number: int, *, is_committed: bool) -> None:
        if is_committed and self.opened is not None:
            if self.cut is not None and self.cut_number is not None:
                latest = Snapshot(number=self.cut_number, course=self.cut)
                self.earlier = (*self.earlier, latest)[-_MOST_EARLIER_SNAPSHOTS:]
            self.cut, self.cut_number = self.opened, number
        self.opened = None

    def resume(self, coordinator: int) -> None:
        """From a checkpoint's ledger: the shards restore the same snapshot, in new incarnations."""
        for one in {attempt.worker for attempt in self.course.evaluation.attempts.values()}:
            self.driver.lost(self.course, one)
        self.cut = self.cut_number = self.opened = None
        self.earlier = ()
        self.sent = self.returning = False
        self.returned = {}
        self.driver.taken_over(self.course, coordinator)
