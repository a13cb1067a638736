"""Which samples are waiting, leased and processed: the account of the data. Pure.

Processed is counted per range of a portion and epoch, so that repeats are exact whatever the order
in which late news arrive: a sample is repeated as often as it was applied, on any shard, beyond the
first time. A range is done when it is applied on all shards, and touched when on at least one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from disttrain.coordinator.leases import intervals, permutation
from disttrain.coordinator.leases.intervals import Interval, Intervals
from disttrain.coordinator.protocol.fields import Lease, MemberId, Position, Progress, Strict

ANYBODY = -1
"""Queue of the portions that no replica had before."""

Piece = tuple[int, int, int]
"""Portion, first, end."""


@dataclass(kw_only=True, slots=True)
class OpenLease(Strict):
    """A lease whose end is not known."""

    lease: Lease
    incarnation: int
    offset: int = 0
    """Samples of it that are done."""
    lost: bool = False
    """The rest was given to others; its holder may still push some of it."""


@dataclass(kw_only=True, slots=True)
class PortionAccount(Strict):
    """The processed ranges of a portion that is not complete."""

    done: Intervals = ()
    touched: Intervals = ()


@dataclass(kw_only=True, slots=True)
class Epoch(Strict):
    """One pass over the data that is not complete, or whose leases are not closed."""

    queues: dict[int, list[Piece]]
    """What waits, by the replica that had it last; the next one at the end of each list."""
    accounts: dict[int, PortionAccount] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    """Portions that are complete."""


@dataclass(kw_only=True, slots=True)
class DataLedger(Strict):
    """The account of the data of a job."""

    seed: int = 0
    samples: int = 0
    """Size of the training data; 0 as long as it is unknown."""
    portion_size: int = 0
    batch_size: int = 1
    sources: str = ""
    """Digest of the sources of data that is read in order; empty: the data is map-style."""
    epochs: dict[int, Epoch] = field(default_factory=dict)
    next_epoch: int = 0
    epochs_done: int = 0
    leases: dict[int, list[OpenLease]] = field(default_factory=dict)
    """By replica index, increasing ids."""
    next_lease: int = 1
    owners: dict[int, int] = field(default_factory=dict)
    """Replica that had a portion last, by portion."""
    samples_done: int = 0
    """Distinct per epoch: a repeated sample counts once."""
    steps_done: int = 0
    samples_outside: int = 0
    """Of replicas that bring their own data."""
    samples_repeated: int = 0
    samples_partially_applied: int = 0
    """Applied on some shards only when their replica died; given to others."""
    portions_done: int = 0
    portions_requeued: int = 0
    samples_requeued: int = 0

    @property
    def portions(self) -> int:
        return permutation.portion_count(self.samples, self.portion_size) if self.samples else 0

    def held(self, member: MemberId) -> list[OpenLease]:
        mine = self.leases.get(member.index, ())
        return [lease for lease in mine if lease.incarnation == member.incarnation]

    def outstanding(self) -> Iterator[int]:
        """Samples still expected of each open lease that is not lost."""
        for leases in self.leases.values():
            for lease in leases:
                if not lease.lost:
                    yield lease.lease.samples - lease.offset

    def open_epoch(self) -> None:
        """Puts every portion of the next epoch into the queue of the replica that had it last."""
        order = permutation.portion_order(self.seed, self.portions, self.next_epoch)
        queues: dict[int, list[Piece]] = {}
        for portion in reversed(order):
            queue = queues.setdefault(self.owners.get(portion, ANYBODY), [])
            queue.append((portion, 0, self._length(portion)))
        self.epochs[self.next_epoch] = Epoch(queues=queues)
        self.next_epoch += 1

    def begin_batches(self, portion_size: int) -> None:
        """Nothing is leased from now on: a batch method gives out groups of portions."""
        self.portion_size = self.batch_size = portion_size
        self.epochs, self.owners = {}, {}

    def grant(self, member: MemberId, lease: Lease) -> None:
        """Takes the lease's range out of its queue, for a living replica."""
        epoch = self.epochs[lease.epoch]
        key = next(
            key
            for key, queue in epoch.queues.items()
            if queue and queue[-1][:2] == (lease.portion, lease.first)
        )
        portion, _, end = epoch.queues[key].pop()
        if lease.end < end:
            epoch.queues[key].append((portion, lease.end, end))
        self.owners[portion] = member.index
        self.next_lease = lease.id + 1
        open_lease = OpenLease(lease=lease, incarnation=member.incarnation)
        self.leases.setdefault(member.index, []).append(open_lease)

    def advance(self, member: MemberId, progress: Progress) -> None:
        """What a replica says it has finished; anything older than known changes nothing."""
        given_up = {position.lease: position.offset for position in progress.abandoned}
        for held in self.held(member):
            target = given_up.get(held.lease.id, _offset_at(held.lease, progress.position))
            self._advance_lease(held, target)
            if held.lease.id in given_up:
                self._requeue_rest(held)
                self._close(member.index, held)
            elif held.offset == held.lease.samples:
                self._close(member.index, held)
        self._forget_finished_epochs()

    def expire(self, member: MemberId) -> None:
        """A silent replica's leases are lost to it: the rest goes to others."""
        for held in self.held(member):
            self._requeue_rest(held)

    def finish(self, member: MemberId, progress: Progress, *, at_end: bool) -> None:
        """A replica will push nothing more; it says where it ended.

        `at_end`: of the job. What is left then waits for a resume; before, it goes to others.
        """
        self.advance(member, progress)
        for held in self.held(member) if at_end else ():
            self._put_back(held)
        self._close_all(member)

    def reconcile(self, member: MemberId, lowest: Position, highest: Position) -> None:
        """A replica is dead and fenced; the shards say how far it got at least and at most."""
        self.advance(member, Progress(position=lowest))
        for held in self.held(member):
            reached = min(_offset_at(held.lease, highest), held.lease.samples)
            if reached > held.offset:
                first = held.lease.first
                self._touch(held.lease, first + held.offset, first + reached)
                self.samples_partially_applied += reached - held.offset
        self._close_all(member)

    def _close_all(self, member: MemberId) -> None:
        for held in self.held(member):
            self._requeue_rest(held)
            self._close(member.index, held)
        self._forget_finished_epochs()

    def _advance_lease(self, held: OpenLease, target: int) -> None:
        target = min(target, held.lease.samples)
        if target <= held.offset:
            return
        first, end = held.lease.first + held.offset, held.lease.first + target
        held.offset = target
        self._mark_done(held.lease, first, end)
        if held.lost:
            self._take_back(held.lease, (first, end))

    def _mark_done(self, lease: Lease, first: int, end: int) -> None:
        self._touch(lease, first, end)
        epoch = self.epochs[lease.epoch]
        if lease.portion in epoch.finished:
            return
        account = epoch.accounts[lease.portion]
        new = end - first - intervals.overlap(account.done, first, end)
        account.done = intervals.union(account.done, first, end)
        self.samples_done += new
        self.steps_done += -(-new // self.batch_size)
        if account.done == ((0, self._length(lease.portion)),):
            self._finish_portion(epoch, lease.portion)

    def _touch(self, lease: Lease, first: int, end: int) -> None:
        epoch = self.epochs[lease.epoch]
        if lease.portion in epoch.finished:
            self.samples_repeated += end - first
            return
        account = epoch.accounts.setdefault(lease.portion, PortionAccount())
        self.samples_repeated += intervals.overlap(account.touched, first, end)
        account.touched = intervals.union(account.touched, first, end)

    def _finish_portion(self, epoch: Epoch, portion: int) -> None:
        epoch.accounts.pop(portion)
        epoch.finished.add(portion)
        self.portions_done += 1
        if len(epoch.finished) == self.portions:
            self.epochs_done += 1

    def _requeue_rest(self, held: OpenLease) -> None:
        rest = self._put_back(held)
        if rest:
            self.portions_requeued += 1
            self.samples_requeued += intervals.size(rest)

    def _put_back(self, held: OpenLease) -> Intervals:
        """Queues what is left of a lease, unless it is lost already; what that is."""
        if held.lost:
            return ()
        held.lost = True
        rest = self._undone(held.lease, held.lease.first + held.offset)
        queue = self.epochs[held.lease.epoch].queues.setdefault(ANYBODY, []) if rest else []
        queue.extend((held.lease.portion, first, end) for first, end in reversed(rest))
        return rest

    def _undone(self, lease: Lease, first: int) -> Intervals:
        """What is left of a lease: a late push of an earlier holder may have done some of it."""
        epoch = self.epochs[lease.epoch]
        if lease.portion in epoch.finished:
            return ()
        rest: Intervals = ((first, lease.end),) if first < lease.end else ()
        for done in epoch.accounts.get(lease.portion, PortionAccount()).done:
            rest = intervals.without(rest, *done)
        return rest

    def _take_back(self, lease: Lease, done: Interval) -> None:
        """What a lost lease's holder did nevertheless need not be given to others any more."""
        for queue in self.epochs[lease.epoch].queues.values():
            queue[:] = [piece for old in queue for piece in _piece_without(old, lease, done)]

    def _close(self, index: int, held: OpenLease) -> None:
        self.leases[index].remove(held)
        if not self.leases[index]:
            del self.leases[index]

    def _forget_finished_epochs(self) -> None:
        done = [n for n, epoch in self.epochs.items() if len(epoch.finished) == self.portions]
        if not done:
            return
        used = {held.lease.epoch for leases in self.leases.values() for held in leases}
        for number in set(done) - used:
            del self.epochs[number]

    def _length(self, portion: int) -> int:
        return permutation.portion_samples(self.samples, self.portion_size, portion)


def _offset_at(lease: Lease, position: Position) -> int:
    """How much of a lease is complete at a position of its holder."""
    if lease.id < position.lease:
        return lease.samples
    return position.offset if lease.id == position.lease else 0


def _piece_without(piece: Piece, lease: Lease, done: Interval) -> list[Piece]:
    portion, first, end = piece
    if portion != lease.portion:
        return [piece]
    rest = intervals.without([(first, end)], *done)
    return [(portion, low, high) for low, high in reversed(rest)]
