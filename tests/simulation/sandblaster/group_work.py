"""What simulated shards and replicas of every kind do for a group's gradient."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from disttrain.coordinator.protocol import orders
from disttrain.coordinator.protocol.messages import GroupLease
from disttrain.sandblaster.batch.groups import Result, Worker
from disttrain.sandblaster.batch.orders import Order
from disttrain.sandblaster.batch.shard import BatchShard
from disttrain.sandblaster.batch.staging import Chunk, Layout
from disttrain.sandblaster.errors import NotStaged, OrderRefused, UnknownVector, WrongEvaluation
from disttrain.sandblaster.kernels import Array
from disttrain.sandblaster.names import PARAMETERS
from simulation.clockwork import Action
from simulation.sandblaster import problem

CHUNKS = 2
STAGING_BYTES = 1 << 20


@dataclass(slots=True)
class Held:
    """A group that a replica has."""

    lease: GroupLease
    computed: problem.Computed | None = None
    acknowledged: set[int] = field(default_factory=set)
    """Shards that have all pieces."""
    is_told: bool = False

    def owed(self, sender: Worker) -> Iterator[tuple[int, Chunk, problem.Point]]:
        """The pieces of what is computed, each with its shard, of shards that have not all."""
        if self.computed is None:
            return
        lease = self.lease
        for shard, part in enumerate(problem.RANGES):
            if shard not in self.acknowledged:
                values = self.computed.gradient[part]
                for chunk, piece in pieces(
                    sender, lease.evaluation, lease.group, lease.attempt, values
                ):
                    yield shard, chunk, piece

    def staged(self, shard: int) -> Result | None:
        """A shard has all pieces; when the last one has: what the coordinator is told, once."""
        if self.computed is None:
            return None
        self.acknowledged.add(shard)
        if self.is_told or len(self.acknowledged) < problem.SHARDS:
            return None
        self.is_told = True
        return Result(
            attempt=self.lease.attempt,
            evaluation=self.lease.evaluation,
            loss_sum=self.computed.loss_sum,
            samples=self.computed.samples,
            shards=self.lease.shards,
        )


def layout_of(values: Array) -> Layout:
    """Every piece in a few chunks."""
    return Layout(
        elements=len(values), chunk_elements=-(-len(values) // CHUNKS), element_type=np.float64
    )


def first_shard(point: problem.Point) -> BatchShard:
    """A shard with parameters, and nothing else."""
    shard = BatchShard(layout_of(point), STAGING_BYTES)
    shard.vectors.make(PARAMETERS)[:] = point
    return shard


def copied(shard: BatchShard) -> BatchShard:
    """As a checkpoint has it: nothing is staged."""
    vectors, log = copy.deepcopy(shard.vectors), copy.deepcopy(shard.log)
    return BatchShard(layout_of(vectors[PARAMETERS]), STAGING_BYTES, vectors, log)


def performed(shard: BatchShard, order: Order) -> orders.Result:
    """Carry out an order; what the coordinator is answered."""
    try:
        return orders.Performed(performed=shard.carry_out(order))
    except (OrderRefused, NotStaged, UnknownVector) as error:
        return orders.OrderFailed(message=str(error), why=orders.WhyFailed.OUT_OF_STEP)


def stage(
    shard: BatchShard, chunk: Chunk, values: Array, *, outdated: Action, complete: Action
) -> Action | None:
    """Take a piece of a gradient; what its sender hears when it is too late, or all is there."""
    try:
        is_complete = shard.stage(chunk, values)
    except WrongEvaluation:
        return outdated
    return complete if is_complete else None


def pieces(
    sender: Worker, evaluation: int, group: int, attempt: int, values: problem.Point
) -> Iterator[tuple[Chunk, problem.Point]]:
    """A shard's part of a gradient, as it is sent."""
    layout = layout_of(values)
    for number in range(layout.chunks):
        chunk = Chunk(
            sender=sender, evaluation=evaluation, group=group, attempt=attempt, number=number
        )
        yield chunk, values[layout.place(number)].copy()
