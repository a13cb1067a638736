"""Compares what a replayed replica does with what the recorded one logged, step by step."""

from dataclasses import dataclass, field

import numpy as np

from disttrain.audit.evidence import Records
from disttrain.coordinator.protocol.fields import Position
from disttrain.errors import FinalError
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.replica.ledger import Gradient, Kind, Ledger
from disttrain.replica.work import WorkItem


class RecordContradicted(FinalError):
    """What the replay does and what the record says do not fit: another task, data or version."""


@dataclass(slots=True)
class Differences:
    """What was compared over all replicas, and the first things that differed."""

    losses: int = 0
    """Losses and gradient norms compared."""
    updates: int = 0
    """Versions and stalenesses compared."""
    found: list[str] = field(default_factory=list)


class ComparingLedger(Ledger):
    """Instead of writing, holds every event against the next one in the record."""

    def __init__(
        self, incarnation: SenderIncarnation, records: Records, differences: Differences
    ) -> None:
        super().__init__()
        self.incarnation = incarnation
        self._records = records
        self._differences = differences
        self._next = 0

    @property
    def passed(self) -> int:
        """Records that the replay has come to."""
        return self._next

    @property
    def following(self) -> np.void | None:
        """The next record; None at the end."""
        return self._records[self._next] if self._next < len(self._records) else None

    @property
    def following_kind(self) -> int:
        """The kind of the next record; 0 at the end."""
        record = self.following
        return 0 if record is None else int(record["kind"])

    def step(self, number: int, item: WorkItem) -> None:
        del item
        self._expect((Kind.STEP,), number)

    def computed(self, gradient: Gradient, position: Position) -> None:
        """A step's gradient is there; its loss and norm are those of the record, to the bit."""
        del position
        kinds = (Kind.COMPUTED, Kind.NOT_FINITE)
        record = self._expect(kinds, gradient.number)
        self._differences.losses += 1
        recorded = (float(record["loss"]), float(record["squared_norm"]))
        if not np.array_equal(recorded, (gradient.loss, gradient.squared_norm), equal_nan=True):
            self._differences.found.append(
                f"{self.name} step {gradient.number}: loss and squared norm of the gradient are "
                f"{gradient.loss!r} and {gradient.squared_norm!r}, the run's were "
                f"{recorded[0]!r} and {recorded[1]!r}"
            )

    def mark(self, kind: Kind, number: int = 0) -> None:
        self._expect((kind,), number)

    def lease_begun(self, item: WorkItem) -> None:
        """Not compared: it follows from the steps."""

    @property
    def name(self) -> str:
        return f"replica-{self.incarnation.sender} (incarnation {self.incarnation.incarnation})"

    def _expect(self, kinds: tuple[Kind, ...], number: int) -> np.void:
        record = self.following
        if record is None or record["kind"] not in kinds or record["number"] != number:
            found = "the end" if record is None else f"{Kind(record['kind']).name}"
            raise RecordContradicted(
                f"{self.name} comes to {kinds[0].name} {number}, where its log has {found}; "
                "was it run with this version and this task?"
            )
        self._next += 1
        return record
