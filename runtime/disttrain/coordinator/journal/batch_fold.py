"""What the journal's entries mean for a batch method. Pure; called by `fold` alone."""

from disttrain.coordinator.journal import batch_rules, entries
from disttrain.coordinator.journal.batch_state import Batch, copied
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.orders import Decide, Order, Perform
from disttrain.sandblaster.batch.driver import Stage
from disttrain.sandblaster.batch.groups import Worker
from disttrain.transport.header import Role


def begin(state: State, entry: entries.CourseBegun) -> None:
    """The method's first order is known."""
    driver = batch_rules.driver(entry.rules, entry.groups, entry.seed)
    course = driver.begin(state.incarnation, entry.shards)
    state.batch = Batch(rules=entry.rules, groups=entry.groups, seed=entry.seed, course=course)


def perform(state: State, entry: entries.ShardPerformed) -> None:
    """A shard's answer to the course's order."""
    with _Change(state) as batch:
        batch.driver.answered(batch.course, entry.shard, entry.performed)


def settle(state: State) -> None:
    """The order is divided before it is given."""
    with _Change(state) as batch:
        batch.driver.settle_first(batch.course)


def interrupt(state: State) -> None:
    """The evaluation under way begins again later."""
    with _Change(state) as batch:
        batch.samples_of_others += batch.samples_dropped
        batch.driver.interrupted(batch.course)


def grant(state: State, entry: entries.GroupGranted) -> None:
    """A replica gets a group."""
    with _Change(state) as batch:
        batch.driver.request_group(batch.course, worker(entry.member), entry.holding)


def stage(state: State, entry: entries.GroupStaged) -> None:
    """A replica has staged a group."""
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


def begin_return(state: State) -> None:
    """All shards are to go back to the cut."""
    with _Change(state) as batch:
        batch.returning, batch.returned = True, {}


def note_returned(state: State, shard: MemberId) -> None:
    """A shard has gone back."""
    with _Change(state) as batch:
        batch.returned[shard.index] = shard.incarnation


def go_back(state: State, shards: tuple[int, ...]) -> None:
    """All shards are there; without a cut nothing was done since the order of the course."""
    with _Change(state) as batch:
        batch.samples_of_others += batch.samples_dropped
        before = batch.course.samples
        cut = batch.course if batch.cut is None else batch.cut
        batch.driver.returned(batch.course, copied(cut), shards)
        state.data.samples_repeated += before - batch.course.samples
        batch.returns += batch.returning
        batch.returning, batch.returned, batch.sent = False, {}, False


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
    data, course = state.data, batch.course
    portions = -(-data.samples // data.portion_size)
    under_way = batch.samples_now if course.stage is Stage.COMPUTING else 0
    data.epochs_done = course.samples // data.samples
    data.samples_done = course.samples + under_way
    data.steps_done = data.portions_done = course.samples * portions // data.samples
    data.portions_requeued = batch.all_requeued * batch.rules.push_every_portions
