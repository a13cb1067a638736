"""The coordinator's machine with one real shard of a batch method, without a network."""

from dataclasses import replace

import numpy as np

from builders.machines import BASE, Machine
from disttrain.coordinator.decisions.transaction import CoordinatorSide
from disttrain.coordinator.journal.batch_state import Batch
from disttrain.coordinator.protocol import commands, messages
from disttrain.coordinator.protocol.fields import NO_PROGRESS, MemberId
from disttrain.coordinator.strategies.sandblaster import BatchMethod
from disttrain.job.stop import Stop
from disttrain.job.strategies.sandblaster import BatchOptimizer, Lbfgs, Sandblaster
from disttrain.job.strategy_kind import Precision
from disttrain.sandblaster.batch.groups import Result, Worker
from disttrain.sandblaster.batch.staging import BatchShard, Chunk, Layout
from disttrain.sandblaster.operations import PARAMETERS, TRIAL

RULES = Sandblaster(
    precision=Precision.FLOAT64,
    portion_size=8,
    push_every_portions=2,
    optimizer=BatchOptimizer(lbfgs=Lbfgs()),
)
"""32 samples in 4 portions in 2 groups."""
LAYOUT = Layout(elements=3, chunk_elements=3, element_type=np.float64)


def batch_method(rules: Sandblaster = RULES, **changes: object) -> BatchMethod:
    given = {"evaluation": None, "stop": Stop(iterations=50), **changes}
    return BatchMethod(settings=replace(BASE, **given), rules=rules)  # type: ignore[arg-type]


class BatchMachine(Machine):
    """One real shard, whose loss is half the square of the parameters."""

    def __init__(self, *stages: CoordinatorSide, **changes: object) -> None:
        super().__init__(None, *stages or (batch_method(**changes),))  # type: ignore[arg-type]
        self.shard = BatchShard(LAYOUT, 1 << 20)
        self.shard.vectors.make(PARAMETERS)[:] = (1.0, 2.0, 3.0)
        self.returned: list[int] = []
        self.failing: commands.CommandFailed | None = None
        self.damaged: set[int] = set()
        """Checkpoints that the shard cannot return to."""

    @property
    def batch(self) -> Batch:
        assert self.state.batch is not None
        return self.state.batch

    def ask(self, replica: MemberId, *holding: int) -> tuple[messages.GroupLease, ...]:
        request = messages.RequestWork(
            member=replica, held=0, last_lease=0, progress=NO_PROGRESS, attempts=holding
        )
        reply = self.request(request)
        assert isinstance(reply, messages.Work)
        return reply.groups

    def do(
        self, replica: MemberId, lease: messages.GroupLease, loss: float | None = None
    ) -> messages.Reply:
        point = self.shard.vectors[TRIAL]
        chunk = Chunk(
            sender=Worker(replica.index, replica.incarnation),
            evaluation=lease.evaluation,
            group=lease.group,
            attempt=lease.attempt,
            number=0,
        )
        self.shard.staging.stage(chunk, 16 * np.array(point))
        value = 8.0 * float(np.dot(point, point)) if loss is None else loss
        return self.say(replica, lease, value)

    def say(self, replica: MemberId, lease: messages.GroupLease, value: float) -> messages.Reply:
        result = Result(
            attempt=lease.attempt,
            evaluation=lease.evaluation,
            loss_sum=value,
            samples=16,
            shards=lease.shards,
        )
        return self.request(messages.GroupDone(member=replica, result=result))

    def evaluate(self, *replicas: MemberId, loss: float | None = None) -> None:
        """All groups of the evaluation under way."""
        for replica in replicas:
            for lease in self.ask(replica):
                self.do(replica, lease, loss)
        self.obey()

    def _result(self, command: commands.Command, member: MemberId) -> commands.Result:
        if isinstance(command, commands.Perform):
            if self.failing is not None:
                failed, self.failing = self.failing, None
                return failed
            return commands.Performed(performed=self.shard.carry_out(command.order))
        if isinstance(command, commands.RollBack) and command.checkpoint in self.damaged:
            message = f"checkpoint {command.checkpoint}: its hash is another one"
            return commands.CommandFailed(message=message, why=commands.WhyFailed.DAMAGED)
        if isinstance(command, commands.RollBack):
            self.returned.append(command.checkpoint)
            self.shard = BatchShard(LAYOUT, 1 << 20)
            self.shard.vectors.make(PARAMETERS)[:] = (1.0, 2.0, 3.0)
        return super()._result(command, member)
