"""What the journal's entries mean for a batch method. Pure; called by `fold` alone."""

from functools import singledispatch

from disttrain.coordinator.journal import batch_changes, batch_entries, batch_rules, totals
from disttrain.coordinator.journal.batch_state import Batch, Before, Cut, copied
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.orders import Decide, Order, Perform
from disttrain.sandblaster.batch.driver import Stage
from disttrain.sandblaster.batch.groups import Worker
from disttrain.transport.header import Role

_MOST_EARLIER_CUTS = 4
"""Each is kept in every ledger. Of older checkpoints few jobs keep any."""


@singledispatch
def apply(entry: object, state: State) -> None:
    """Changes the state by one entry of a batch method."""
    message = f"no meaning for {entry!r} in {state.phase}"
    raise TypeError(message)


@apply.register
def _(_: batch_entries.WarmStartEnded, state: State) -> None:
    state.warm_start.ended = True


@apply.register
def _(entry: batch_entries.WarmStartDrained, state: State) -> None:
    state.warm_start.cut = entry.checkpoint


@apply.register
def _(entry: batch_entries.WarmStartLeft, state: State) -> None:
    found = state.replicas.get(entry.member.index)
    if found is not None and found.incarnation == entry.member.incarnation:
        found.left_warm_start, found.drained = True, False


@apply.register
def _(entry: batch_entries.CourseBegun, state: State) -> None:
    driver = batch_rules.driver(entry.rules, entry.groups, entry.seed)
    course = driver.begin(state.incarnation, entry.shards)
    state.batch = Batch(
        rules=entry.rules,
        groups=entry.groups,
        seed=entry.seed,
        before=_done_before(state.data),
        course=course,
        cut=None if entry.cut is None else copied(course),
        cut_number=entry.cut,
        returning=entry.cut is not None,
        entering=entry.cut is not None,
    )
    state.data.begin_batches(entry.rules.portion_size)


def _done_before(data: DataLedger) -> Before:
    return Before(
        epochs=data.epochs_done,
        samples=data.samples_done,
        steps=data.steps_done,
        portions=data.portions_done,
        requeued=data.portions_requeued,
    )


@apply.register
def _(entry: batch_entries.RulesChanged, state: State) -> None:
    state.data.portion_size = entry.rules.portion_size
    with _Change(state) as batch:
        changes = batch_changes.between(batch.rules, entry.rules)
        batch.rules, batch.groups = entry.rules, entry.groups
        batch.changes.extend(entry.changes)
        is_over = batch.course.method.progress.end is not None
        if is_over or batch_changes.begins_again(changes):
            batch.driver.begun_again(batch.course)


@apply.register
def _(entry: batch_entries.ShardPerformed, state: State) -> None:
    with _Change(state) as batch:
        batch.driver.answered(batch.course, entry.shard, entry.performed)


@apply.register
def _(_: batch_entries.CourseSettled, state: State) -> None:
    with _Change(state) as batch:
        batch.driver.settle_first(batch.course)


@apply.register
def _(_: batch_entries.CourseInterrupted, state: State) -> None:
    with _Change(state) as batch:
        batch.samples_of_others += batch.samples_dropped
        batch.driver.interrupted(batch.course)


@apply.register
def _(entry: batch_entries.GroupGranted, state: State) -> None:
    with _Change(state) as batch:
        batch.driver.request_group(batch.course, worker(entry.member), entry.holding)


@apply.register
def _(entry: batch_entries.GroupStaged, state: State) -> None:
    with _Change(state) as batch:
        batch.driver.staged(batch.course, worker(entry.member), entry.result)


def lose(state: State, member: MemberId) -> None:
    """A member is gone, or silent for long."""
    if state.batch is not None and member.role is Role.REPLICA:
        with _Change(state) as batch:
            batch.driver.lost(batch.course, worker(member))


def give(state: State, order: Order) -> None:
    """An order to a shard is on its way."""
    if state.batch is None:
        return
    if isinstance(order, Perform):
        state.batch.sent = True
    elif isinstance(order, Decide):
        state.batch.told = len(state.batch.course.evaluation.winners)


def take_over(state: State) -> None:
    """Another life of the coordinator."""
    state.incarnation += 1
    if state.batch is not None:
        state.batch.driver.taken_over(state.batch.course, state.incarnation)


@apply.register
def _(_: batch_entries.ReturnBegun, state: State) -> None:
    with _Change(state) as batch:
        batch.returning, batch.returned = True, {}


@apply.register
def _(_: batch_entries.CutDamaged, state: State) -> None:
    with _Change(state) as batch:
        totals.note_damaged(state.totals, batch.cut_number)
        *earlier, before = batch.earlier
        batch.cut, batch.cut_number, batch.earlier = before.course, before.number, tuple(earlier)
        batch.returning, batch.returned = True, {}


@apply.register
def _(entry: batch_entries.ShardReturned, state: State) -> None:
    with _Change(state) as batch:
        batch.returned[entry.member.index] = entry.member.incarnation


@apply.register
def _(entry: batch_entries.CourseReturned, state: State) -> None:
    with _Change(state) as batch:
        batch.samples_of_others += batch.samples_dropped
        before = batch.course.samples
        cut = batch.course if batch.cut is None else batch.cut
        batch.driver.returned(batch.course, copied(cut), entry.shards)
        state.data.samples_repeated += before - batch.course.samples
        batch.returns += batch.returning and not batch.entering
        batch.returning = batch.entering = batch.sent = False
        batch.returned = {}


def open_checkpoint(state: State) -> None:
    """The shards write what they have."""
    if state.batch is not None:
        state.batch.opened = copied(state.batch.course)


def end_checkpoint(state: State, number: int, *, is_committed: bool) -> None:
    """They have, or the checkpoint was given up."""
    batch = state.batch
    if batch is None:
        return
    if is_committed and batch.opened is not None:
        if batch.cut is not None and batch.cut_number is not None:
            latest = Cut(number=batch.cut_number, course=batch.cut)
            batch.earlier = (*batch.earlier, latest)[-_MOST_EARLIER_CUTS:]
        batch.cut, batch.cut_number = batch.opened, number
    batch.opened = None


def resume(state: State) -> None:
    """From the ledger of a checkpoint: the shards restore the same cut, in new lives."""
    batch = state.batch
    if batch is None:
        return
    for one in {attempt.worker for attempt in batch.course.evaluation.attempts.values()}:
        batch.driver.lost(batch.course, one)
    batch.cut = batch.cut_number = batch.opened = None
    batch.earlier = ()
    batch.sent = batch.returning = False
    batch.returned = {}
    batch.driver.taken_over(batch.course, state.incarnation)


def worker(member: MemberId) -> Worker:
    """A replica as the groups know it."""
    return Worker(member.index, member.incarnation)


class _Change:
    """Around a change of the course: what follows from it in the rest of the state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __enter__(self) -> Batch:
        if self._state.batch is None:
            message = "there is no course yet"
            raise AssertionError(message)
        self._batch = self._state.batch
        self._order = self._batch.course.order.number
        self._evaluation = self._batch.course.evaluation
        return self._batch

    def __exit__(self, *_: object) -> None:
        batch, course = self._batch, self._batch.course
        if course.order.number != self._order:
            batch.sent = False
        if course.evaluation is not self._evaluation:
            batch.told = 0
            batch.requeued += self._evaluation.requeued
            batch.copies += self._evaluation.copies
            batch.groups_done += len(self._evaluation.winners)
        _count(self._state, batch)


def _count(state: State, batch: Batch) -> None:
    """Passes over the data are those of the evaluations; a step is a portion."""
    data, course, before = state.data, batch.course, batch.before
    under_way = batch.samples_now if course.stage is Stage.COMPUTING else 0
    portions = course.samples * data.portions // data.samples
    requeued = batch.all_requeued * batch.rules.push_every_portions
    data.epochs_done = before.epochs + course.samples // data.samples
    data.samples_done = before.samples + course.samples + under_way
    data.steps_done = before.steps + portions
    data.portions_done = before.portions + portions
    data.portions_requeued = before.requeued + requeued
