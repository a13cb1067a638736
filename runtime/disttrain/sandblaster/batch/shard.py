"""All that Sandblaster is on one shard: vectors, what is staged, and the orders on both."""

import numpy as np

from disttrain.sandblaster.batch.orders import Decided, Order, OrderLog, Performed
from disttrain.sandblaster.batch.staging import Layout, Staging
from disttrain.sandblaster.vectors import Vectors


class BatchShard:
    """One life of a shard. Belongs to one thread."""

    def __init__(
        self,
        layout: Layout,
        most_staged_bytes: int,
        vectors: Vectors | None = None,
        log: OrderLog | None = None,
    ) -> None:
        """`vectors` and `log`: of an earlier life, both of one moment; None: nothing is there."""
        self.vectors = vectors or Vectors(layout.elements, layout.element_type)
        self.log = log or OrderLog()
        self.staging = Staging(layout, most_bytes=most_staged_bytes)

    def decide(self, news: Decided) -> None:
        """See `Staging.decide`. Raises OrderRefused for news of an old coordinator, too."""
        self.log.check(news.coordinator)
        self.staging.decide(news.evaluation, news.winners)

    def carry_out(self, order: Order) -> Performed:
        """See `OrderLog.carry_out`. Raises NotStaged and UnknownVector, too."""
        return self.log.carry_out(order, self._perform)

    def _perform(self, order: Order) -> tuple[float, ...]:
        if order.commits:
            totals = self.staging.totals(order.commits)
            for run, total in zip(order.sums, totals, strict=True):
                made = self.vectors.make(run.vector)
                np.divide(total, run.divisor or run.samples, out=made, casting="same_kind")
        scalars = self.vectors.perform(order.operations)
        self.staging.begin(order.evaluation, order.groups, order.runs)
        return scalars
