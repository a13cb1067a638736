"""Local steps: portions are leased as in Downpour, and pushed after many more steps. No I/O."""

from dataclasses import dataclass, replace
from typing import Any, Self

from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.settings import Settings
from disttrain.coordinator.strategies.downpour import MOST_PORTIONS, Asynchronous
from disttrain.job.strategies.local_steps import LocalSteps


@dataclass(frozen=True, kw_only=True, slots=True)
class LocallyStepping(Asynchronous):
    """Leases stay open until the push after their last step."""

    of = LocalSteps

    steps: int = 1
    """Of a replica between two pushes."""

    @staticmethod
    def kept(rule: Any) -> tuple[str, ...]:
        vectors: tuple[str, ...] = rule.vectors
        return vectors

    @classmethod
    def made(cls, rule: Any, common: Settings) -> Self:
        settings = replace(
            common, staleness_bound=rule.staleness_bound, most_portions=MOST_PORTIONS
        )
        return cls(settings=settings, steps=rule.steps)

    def most_open(self, data: DataLedger) -> int:
        """Those of one push, and as many that the next one begins with."""
        in_a_push = -(-self.steps * data.batch_size // max(data.portion_size, 1))
        return super(LocallyStepping, self).most_open(data) + 2 * in_a_push
