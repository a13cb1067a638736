"""A shard of Sandblaster: gradients of groups are staged, orders change the vectors."""

import time
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch

from disttrain.coordinator.protocol import orders
from disttrain.coordinator.protocol.orders import OrderFailed, WhyFailed
from disttrain.holder.errors import WrongSnapshot
from disttrain.holder.values import Values
from disttrain.holder.writing import Cut
from disttrain.parameter_server.batch_figures import BatchFigures
from disttrain.parameter_server.batch_values import NUMBER_TYPES, BatchValues
from disttrain.parameter_server.deliveries import Delivered, SenderLife
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.restoring import RestoredShard
from disttrain.parameter_server.shard import Answers, Problem, Shard
from disttrain.parameter_server.state import Answer, ShardState
from disttrain.sandblaster.batch.groups import Worker
from disttrain.sandblaster.batch.orders import Decided, Order, OrderLog
from disttrain.sandblaster.batch.shard import BatchShard
from disttrain.sandblaster.batch.staging import Chunk, Layout
from disttrain.sandblaster.errors import (
    NotStaged,
    OrderRefused,
    StagingFull,
    UnknownVector,
    WrongChunk,
    WrongEvaluation,
)
from disttrain.sandblaster.names import TRIAL
from disttrain.state.share import Share
from disttrain.telemetry import logs
from disttrain.transport.header import Header, Reason, Verb

LOG = logs.get(__name__)

STAGED_BYTES = 1 << 30
"""Of gradients that are not committed there may be so many bytes. If all attempts that replicas
hold are more, then those: shards that are full of different ones would wait for ever."""
ATTEMPTS_OF_A_REPLICA = 2
OTHER_PIECES = 32
"""Of replicas that are gone, winners that were not told yet, and sums of neighbouring groups: about
as many as the groups' number has digits."""

_COORDINATOR, _LAST_ORDER = "coordinator", "order"

_REASONS = {
    WrongEvaluation: Reason.WRONG_EVALUATION,
    WrongChunk: Reason.WRONG_LAYOUT,
    StagingFull: Reason.BUSY,
}


Reload: TypeAlias = Callable[[int, Share], RestoredShard]
"""Reads this shard's part of a checkpoint that was committed, given its number and what is wanted.

Raises CheckpointError, WrongSnapshot.
"""


class SandblasterShard(Shard):
    """See `Shard`. Versions count what has changed the vectors: orders, and returns."""

    def __init__(
        self, state: ShardState, records: Records, reload: Reload, *, replicas: int
    ) -> None:
        super().__init__(state, records)
        self._most_pieces = ATTEMPTS_OF_A_REPLICA * replicas + OTHER_PIECES
        self._orders = 0
        self._order_seconds = 0.0
        self._reload = reload
        self._batch: BatchShard | None = None
        self._cut: Cut | None = None
        self._handlers[Verb.STAGE] = self._stage

    @property
    def batch(self) -> BatchShard:
        """Vectors, staged gradients and the log of orders."""
        if self._batch is None:
            message = "a shard without values carries nothing out"
            raise AssertionError(message)
        return self._batch

    @property
    def figures(self) -> BatchFigures:
        return BatchFigures(
            staged_bytes=0 if self._batch is None else self._batch.staged_bytes,
            orders=self._orders,
            order_seconds=self._order_seconds,
        )

    @property
    def keeps_updates(self) -> bool:
        return False

    def make_room(self, share: Share) -> Values:
        values = BatchValues(share)
        self._begin(values, OrderLog())
        return values

    def restore(self, restored: RestoredShard) -> None:
        """See `Shard.restore`. Raises WrongSnapshot."""
        if not isinstance(restored.values, BatchValues):
            message = f"checkpoint {restored.checkpoint} has no vectors of a batch method"
            raise WrongSnapshot(message)
        super().restore(restored)
        said = restored.description
        last, coordinator = int(said.get(_LAST_ORDER, "0")), int(said.get(_COORDINATOR, "0"))
        self._begin(restored.values, OrderLog(coordinator=coordinator, last=last))

    def protect(self, cut: Cut | None) -> None:
        self._cut = cut

    def fence(self, life: SenderLife) -> Delivered:
        if self._batch is not None:
            self._batch.forget(Worker(life.sender, life.incarnation))
        return super().fence(life)

    def carry_out(self, order: orders.Order) -> orders.Result:
        if self._batch is None or not self.state.is_initialised:
            return OrderFailed(message="the initial values are not complete")
        match order:
            case orders.Perform():
                return self._perform(order.order)
            case orders.Decide():
                return self._decide(order.news)
            case _:
                return super().carry_out(order)

    def _perform(self, order: Order) -> orders.Result:
        log, evaluation = self.batch.log, self.batch.evaluation
        is_new = order.number > log.last
        if is_new and self._cut is not None:
            changing = self.batch.vectors.changed_by(order.operations, order.committed)
            self._cut.before_change_of([torch.from_numpy(values) for values in changing])
        began = time.perf_counter()
        try:
            performed = self.batch.carry_out(order)
        except (NotStaged, OrderRefused, UnknownVector) as error:
            LOG.warning("an order cannot be carried out", number=order.number, error=error)
            return OrderFailed(message=str(error)[:1000], why=WhyFailed.OUT_OF_STEP)
        if is_new:
            self._orders += 1
            self._order_seconds += time.perf_counter() - began
            self.records.committed(evaluation, order)
            self._changed()
        return orders.Performed(performed=performed)

    def _decide(self, news: Decided) -> orders.Result:
        try:
            self.batch.decide(news)
        except (NotStaged, OrderRefused) as error:
            return OrderFailed(message=str(error)[:1000], why=WhyFailed.OUT_OF_STEP)
        return orders.Done()

    def reload(self, checkpoint: int) -> RestoredShard:
        return self._reload(checkpoint, self._values.share)

    def _take_over(self, checkpoint: int, restored: RestoredShard) -> None:
        version = self.state.count
        coordinator = 0 if self._batch is None else self._batch.log.coordinator
        self.restore(restored)
        # What was heard and given out in this life stays so: neither goes back.
        log = self.batch.log
        log.coordinator = max(log.coordinator, coordinator)
        self.state.count = version
        self._changed()
        self.records.returned(checkpoint, log.last)
        LOG.info("returned to a checkpoint", number=checkpoint, order=log.last)

    def _changed(self) -> None:
        log = self.batch.log
        self.state.count += 1
        self.state.description = {_LAST_ORDER: str(log.last), _COORDINATOR: str(log.coordinator)}

    def _begin(self, values: BatchValues, log: OrderLog) -> None:
        share, trained = values.share, values.trained
        layout = Layout(
            elements=share.ranges[trained].count,
            chunk_elements=share.chunk_elements(trained),
            element_type=NUMBER_TYPES[trained.element_type],
        )
        most = max(STAGED_BYTES, self._most_pieces * layout.bytes)
        self._batch = BatchShard(layout, most, values.batch, log)
        self.state.description = {_LAST_ORDER: str(log.last), _COORDINATOR: str(log.coordinator)}

    def _stage(self, header: Header, payload: memoryview) -> Answers:
        problem = self._unready(header) or self._unfit(header)
        if problem:
            return self._refuse(header, *problem)
        chunk = Chunk(
            sender=Worker(header.sender, header.incarnation),
            evaluation=header.sequence,
            group=header.lease_offset,
            attempt=header.lease,
            number=header.chunk,
        )
        kind = NUMBER_TYPES[self._values.trained.element_type]
        try:
            is_complete = self.batch.stage(chunk, np.frombuffer(payload, kind))
        except (WrongEvaluation, WrongChunk, StagingFull) as error:
            return self._refuse(header, _REASONS[type(error)], str(error))
        return [self._staged(header)] if is_complete else []

    def _staged(self, header: Header) -> Answer:
        answer = self.state.answer(Verb.STAGED, header)
        return Answer(answer._replace(chunk=header.chunks - 1, count=0, first=0))

    def _unfit(self, header: Header) -> Problem | None:
        values, trained = self._values, self._values.trained
        if values.vector_of(header) == trained and values.is_whole_chunk(trained, header):
            return None
        end = header.first + header.count
        sentence = f"elements {header.first} to {end} are not chunk {header.chunk} of {trained}"
        return Reason.WRONG_LAYOUT, sentence

    def _unfetchable(self, header: Header) -> Problem | None:
        wanted = self._values.share.placement.vector(header.vector)
        is_trial = wanted is not None and wanted.name == TRIAL
        if is_trial and header.sequence != self.batch.evaluation:
            now = self.batch.evaluation
            sentence = f"evaluation {now} is under way, wanted the point of {header.sequence}"
            return Reason.WRONG_EVALUATION, sentence
        return super()._unfetchable(header)
