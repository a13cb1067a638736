"""What the journal says of a batch method and its warm start, and what each entry means."""

from dataclasses import dataclass

from disttrain.coordinator.journal import batch_rules, resume
from disttrain.coordinator.journal.batch_state import Batch, Before, copied, worker
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.protocol.fields import MemberId, Tagged
from disttrain.job.strategies.sandblaster import Sandblaster
from disttrain.sandblaster.batch.groups import Result
from disttrain.sandblaster.batch.programs import Performed


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmStartEnded(Tagged, kind="warm_start_ended"):
    """All samples of a batch method's warm start are processed."""

    def apply(self, state: State) -> None:
        state.warm_start.ended = True


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmStartDrained(Tagged, kind="warm_start_drained"):
    """Nothing of it is under way any more: the next checkpoint is where it ends."""

    checkpoint: int

    def apply(self, state: State) -> None:
        state.warm_start.cut = self.checkpoint


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmStartLeft(Tagged, kind="warm_start_left"):
    """A replica works for the batch method from now on."""

    member: MemberId

    def apply(self, state: State) -> None:
        if found := state.group(self.member):
            found.left_warm_start, found.drained = True, False


@dataclass(frozen=True, kw_only=True, slots=True)
class RunBegun(Tagged, kind="course_begun"):
    """A batch method begins, or begins again before its first command was given."""

    rules: Sandblaster
    groups: int
    """Of portions, in the data."""
    seed: int
    shards: tuple[int, ...]
    """Their incarnations, by index."""
    cut: int | None = None
    """Checkpoint with which its warm start has ended, to which all shards are to return first."""

    def apply(self, state: State) -> None:
        driver = batch_rules.driver(self.rules, self.groups, self.seed)
        run = driver.begin(state.incarnation, self.shards)
        data = state.data
        state.batch = Batch(
            rules=self.rules,
            groups=self.groups,
            seed=self.seed,
            before=Before(
                epochs=data.epochs_done,
                samples=data.samples_done,
                steps=data.steps_done,
                portions=data.portions_done,
                requeued=data.portions_requeued,
            ),
            course=run,
            cut=None if self.cut is None else copied(run),
            cut_number=self.cut,
            returning=self.cut is not None,
            entering=self.cut is not None,
        )
        data.begin_batches(self.rules.portion_size)


@dataclass(frozen=True, kw_only=True, slots=True)
class RulesChanged(Tagged, kind="rules_changed"):
    """The manifest at a resume is another one than at the checkpoint."""

    rules: Sandblaster
    groups: int
    """Of portions, in the data."""
    changes: tuple[str, ...]
    """What is different and what comes of it, a sentence each."""

    def apply(self, state: State) -> None:
        state.data.portion_size = self.rules.portion_size
        with state.changing_batch() as batch:
            begins_again = resume.begins_again(resume.between(batch.rules, self.rules))
            batch.rules, batch.groups = self.rules, self.groups
            batch.changes.extend(self.changes)
            is_over = batch.course.method.progress.end is not None
            if is_over or begins_again:
                batch.driver.begun_again(batch.course)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardPerformed(Tagged, kind="shard_performed"):
    """A shard has carried out the command of the run."""

    shard: int
    performed: Performed

    def apply(self, state: State) -> None:
        with state.changing_batch() as batch:
            batch.driver.answered(batch.course, self.shard, self.performed)


@dataclass(frozen=True, kw_only=True, slots=True)
class PointAccepted(Tagged, kind="course_settled"):
    """The point accepted last becomes the parameters first: something wants to read them."""

    def apply(self, state: State) -> None:
        with state.changing_batch() as batch:
            batch.driver.accept_first(batch.course)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInterrupted(Tagged, kind="course_interrupted"):
    """The evaluation under way is dropped, because the job is to stop."""

    def apply(self, state: State) -> None:
        with state.changing_batch() as batch:
            batch.samples_of_others += batch.samples_dropped
            batch.driver.interrupted(batch.course)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupGranted(Tagged, kind="group_granted"):
    """A replica got a group of portions."""

    member: MemberId
    holding: tuple[int, ...]
    """Attempts that it had."""

    def apply(self, state: State) -> None:
        with state.changing_batch() as batch:
            batch.driver.request_group(batch.course, worker(self.member), self.holding)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupStaged(Tagged, kind="group_staged"):
    """Every shard holds the gradient of an attempt."""

    member: MemberId
    result: Result

    def apply(self, state: State) -> None:
        with state.changing_batch() as batch:
            batch.driver.staged(batch.course, worker(self.member), self.result)


@dataclass(frozen=True, kw_only=True, slots=True)
class RollbackBegun(Tagged, kind="return_begun"):
    """All shards go back to the newest checkpoint."""

    reason: str

    def apply(self, state: State) -> None:
        with state.changing_batch() as batch:
            batch.returning, batch.returned = True, {}


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotDamaged(Tagged, kind="cut_damaged"):
    """The newest checkpoint is not whole: all shards go back to the one before it."""

    reason: str

    def apply(self, state: State) -> None:
        with state.changing_batch() as batch:
            state.totals.note_damaged(batch.cut_number)
            *earlier, before = batch.earlier
            batch.cut, batch.cut_number = before.course, before.number
            batch.earlier = tuple(earlier)
            batch.returning, batch.returned = True, {}


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardRolledBack(Tagged, kind="shard_returned"):
    """A shard is there."""

    member: MemberId

    def apply(self, state: State) -> None:
        with state.changing_batch() as batch:
            batch.returned[self.member.index] = self.member.incarnation


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRolledBack(Tagged, kind="course_returned"):
    """All shards are there, or were never anywhere else."""

    shards: tuple[int, ...]
    """Their incarnations, by index."""

    def apply(self, state: State) -> None:
        with state.changing_batch() as batch:
            batch.samples_of_others += batch.samples_dropped
            before = batch.course.samples
            snapshot = batch.course if batch.cut is None else batch.cut
            batch.driver.rolled_back(batch.course, copied(snapshot), self.shards)
            state.data.samples_repeated += before - batch.course.samples
            batch.returns += batch.returning and not batch.entering
            batch.returning = batch.entering = batch.sent = False
            batch.returned = {}
