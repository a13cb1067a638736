"""Replicas that keep their own parameters: each gets a portion of the data at a time."""

from typing import Any, Self

from disttrain.job.strategies.own_parameters import (  # type: ignore[import-not-found]  # It is added as programs start.
    OwnParameters,
)

from disttrain.coordinator.decisions import membership, running
from disttrain.coordinator.decisions.transaction import CoordinatorSide, Transaction
from disttrain.coordinator.journal import member_entries
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.phases import Phase
from disttrain.coordinator.protocol.messages import RequestWork, Work
from disttrain.coordinator.settings import Settings
from disttrain.coordinator.status.watch import Watch
from disttrain.coordinator.strategies import downpour

_ASK_AGAIN_SECONDS = 0.05


class Descents(CoordinatorSide):
    """No replica waits for another one."""

    of = OwnParameters

    @classmethod
    def made(cls, rule: Any, common: Settings) -> Self:
        del rule
        return cls(settings=common)

    @property
    def own_data_problem(self) -> str:
        return "a loop with its own data has no parameters that this job would keep"

    def has_begun(self, state: State) -> bool:
        del state
        return True

    def loss(self, state: State, watch: Watch) -> float | None:
        """The mean of what the replicas have reported, each by its own mean."""
        del state
        reports = [report for report in watch.replicas.values() if report.loss_steps]
        means = [report.loss_sum / report.loss_steps for report in reports]
        return sum(means) / len(means) if means else None

    def run(self, transaction: Transaction) -> None:
        running.run(transaction)

    def give(self, transaction: Transaction, request: RequestWork) -> Work:
        data, member, stop = transaction.state.data, request.member, transaction.settings.stop
        is_running = transaction.state.phase is Phase.RUNNING
        if is_running and not data.held(member):
            lease = downpour.next_lease(data, member.index, stop)
            if lease is not None:
                transaction.record(member_entries.LeaseGranted(member=member, lease=lease))
            elif downpour.may_open_epoch(data, stop):
                transaction.record(member_entries.EpochOpened())
        lost = membership.lost_leases(transaction, member)
        return Work(
            leases=tuple(downpour.unseen(data.held(member), request.last_lease)),
            wait=is_running or transaction.state.phase is Phase.WAITING or bool(lost),
            after_seconds=_ASK_AGAIN_SECONDS,
            lost_leases=lost,
            live_replicas=len(transaction.live.replicas()),
        )
