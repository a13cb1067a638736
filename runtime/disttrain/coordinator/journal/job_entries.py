"""What the journal says of the job as a whole, and what each entry means."""

from dataclasses import dataclass, replace

from disttrain.coordinator.journal.state import Phase, State
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.protocol.fields import Tagged
from disttrain.state.layout import ModelLayout
from disttrain.state.placement import Placement
from disttrain.transport.header import Role


@dataclass(frozen=True, kw_only=True, slots=True)
class Restarted(Tagged, kind="restarted"):
    """The coordinator itself came back from its journal."""

    def apply(self, state: State) -> None:
        state.totals.add_restart(Role.COORDINATOR)
        for role in (Role.REPLICA, Role.SHARD):
            state.members_changed(role)
        state.incarnation += 1
        if state.batch is not None:
            state.batch.driver.taken_over(state.batch.course, state.incarnation)


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseChanged(Tagged, kind="phase_changed"):
    """The job goes on to another phase."""

    phase: Phase
    now: float
    reason: str = ""
    message: str = ""

    def apply(self, state: State) -> None:
        state.phase = self.phase
        state.reason = self.reason or state.reason
        state.message = self.message or state.message
        if self.phase is Phase.RUNNING:
            self._train(state)
        if self.phase is Phase.CHECKPOINTING:
            state.final_checkpoint = state.next_checkpoint
        if self.phase.ended:
            state.ended = self.now
            state.orders.clear()

    def _train(self, state: State) -> None:
        """Training begins, or goes on because the exported model misses its target."""
        if state.began is None:
            state.began = self.now
        else:
            state.evaluated_epoch = max(state.evaluated_epoch, state.data.epochs_done)
        state.reason = ""
        state.evaluation_tried = self.now
        state.final_failures = 0
        state.evaluations = [replace(found, final=False) for found in state.evaluations]


@dataclass(frozen=True, kw_only=True, slots=True)
class StopAsked(Tagged, kind="stop_asked"):
    """A person wants the job to end."""

    def apply(self, state: State) -> None:
        state.stopping = True


@dataclass(frozen=True, kw_only=True, slots=True)
class DataKnown(Tagged, kind="data_known"):
    """The first replica said how much data there is."""

    seed: int
    samples: int
    portion_size: int
    batch_size: int
    test_samples: int
    warm_start: int | None = None
    """Samples that a batch method begins with, if it has a warm start."""

    def apply(self, state: State) -> None:
        state.test_samples = self.test_samples
        state.warm_start.samples = self.warm_start
        if state.data.samples == 0:
            state.data = DataLedger(
                seed=self.seed,
                samples=self.samples,
                portion_size=self.portion_size,
                batch_size=self.batch_size,
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutKnown(Tagged, kind="layout_known"):
    """The first replica described the model."""

    layout: ModelLayout

    def apply(self, state: State) -> None:
        state.layout = self.layout


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed(Tagged, kind="placed"):
    """Who holds what from now on."""

    placement: Placement

    def apply(self, state: State) -> None:
        state.placement = self.placement
