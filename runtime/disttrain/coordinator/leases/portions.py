"""Which range a replica gets next. Pure: looks at the account, changes nothing."""

from collections.abc import Iterator, Sequence

from disttrain.coordinator.leases.data_ledger import ANYBODY, DataLedger, Epoch, OpenLease
from disttrain.coordinator.protocol.fields import Lease
from disttrain.job.stop import Stop

_COVER_SECONDS = 0.25
"""Work that a replica holds ahead: several times what an answer takes on a busy machine."""

_MOST_LEASES = 8


def next_lease(ledger: DataLedger, index: int, stop: Stop) -> Lease | None:
    """The lease to grant: own portions of the oldest epoch first, then anybody's, then others'.

    With a limit of samples anybody's come first. They hold what was taken from the silent, who may
    do it nevertheless: with other samples in its place that would be too many.
    None: nothing waits in the open epochs, or the stop rules leave no samples to give out.
    """
    budget = remaining_samples(ledger, stop)
    if budget is not None and budget <= 0:
        return None
    first_keys = (index, ANYBODY) if budget is None else (ANYBODY, index)
    for number in sorted(ledger.epochs):
        for queue in _queues(ledger.epochs[number], first_keys):
            portion, first, end = queue[-1]
            end = end if budget is None else min(end, first + budget)
            return Lease(id=ledger.next_lease, epoch=number, portion=portion, first=first, end=end)
    return None


def may_open_epoch(ledger: DataLedger, stop: Stop) -> bool:
    """Whether another pass over the data may begin."""
    budget = remaining_samples(ledger, stop)
    return (
        ledger.samples > 0
        and (stop.epochs is None or ledger.next_epoch < stop.epochs)
        and (budget is None or budget > 0)
    )


def remaining_samples(ledger: DataLedger, stop: Stop) -> int | None:
    """Samples that may still be given out before a stop rule is met exactly; None: no limit."""
    budgets = []
    if stop.samples is not None:
        used = ledger.samples_done + ledger.samples_outside
        budgets.append(stop.samples - used - sum(ledger.outstanding()))
    if stop.steps is not None:
        steps = sum(-(-samples // ledger.batch_size) for samples in ledger.outstanding())
        budgets.append((stop.steps - ledger.steps_done - steps) * ledger.batch_size)
    return min(budgets) if budgets else None


def leases_ahead(portion_size: int, samples_per_second: float) -> int:
    """How many leases a replica should hold: the current one, and enough for a while beyond it."""
    ahead = samples_per_second * _COVER_SECONDS / max(portion_size, 1)
    return min(2 + int(ahead), _MOST_LEASES)


def unseen(held: list[OpenLease], last_lease: int) -> list[Lease]:
    """Leases granted whose reply was lost: the replica has not seen their ids."""
    return [item.lease for item in held if item.lease.id > last_lease]


def _queues(epoch: Epoch, first_keys: Sequence[int]) -> Iterator[list[tuple[int, int, int]]]:
    for key in first_keys:
        if queue := epoch.queues.get(key):
            yield queue
    others = ((key, queue) for key, queue in epoch.queues.items() if queue)
    for key, queue in sorted(others, key=lambda item: (-len(item[1]), item[0])):
        if key not in first_keys:
            yield queue
