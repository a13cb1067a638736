"""What the coordinator decides about a batch method: when orders go out, whose results count."""

import math

import numpy as np
import pytest

from builders.machines import Machine
from disttrain.coordinator.journal.batch_state import Batch
from disttrain.coordinator.journal.state import Phase
from disttrain.coordinator.protocol import messages, orders
from disttrain.coordinator.protocol.fields import NO_PROGRESS, MemberId
from disttrain.job.batch_optimizer import BatchOptimizer, Lbfgs
from disttrain.job.roles import Durability
from disttrain.job.sandblaster import Precision, Sandblaster
from disttrain.job.stop import Stop
from disttrain.sandblaster.batch.driver import Stage
from disttrain.sandblaster.batch.groups import Result, Worker
from disttrain.sandblaster.batch.shard import BatchShard
from disttrain.sandblaster.batch.staging import Chunk, Layout
from disttrain.sandblaster.names import PARAMETERS, TRIAL
from disttrain.transport.header import Role

RULES = Sandblaster(
    precision=Precision.FLOAT64,
    portion_size=8,
    push_every_portions=2,
    optimizer=BatchOptimizer(lbfgs=Lbfgs()),
)
"""32 samples in 4 portions in 2 groups."""
LAYOUT = Layout(elements=3, chunk_elements=3, element_type=np.float64)


class BatchMachine(Machine):
    """One real shard, whose loss is half the square of the parameters."""

    def __init__(self, **changes: object) -> None:
        super().__init__(None, batch=RULES, evaluation=None, stop=Stop(iterations=50), **changes)
        self.shard = BatchShard(LAYOUT, 1 << 20)
        self.shard.vectors.make(PARAMETERS)[:] = (1.0, 2.0, 3.0)
        self.returned: list[int] = []
        self.failing: orders.OrderFailed | None = None

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
        self.shard.stage(chunk, 16 * np.array(point))
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

    def _result(self, order: orders.Order, member: MemberId) -> orders.Result:
        if isinstance(order, orders.Perform):
            if self.failing is not None:
                failed, self.failing = self.failing, None
                return failed
            return orders.Performed(performed=self.shard.carry_out(order.order))
        if isinstance(order, orders.ReturnTo):
            self.returned.append(order.checkpoint)
            self.shard = BatchShard(LAYOUT, 1 << 20)
            self.shard.vectors.make(PARAMETERS)[:] = (1.0, 2.0, 3.0)
        return super()._result(order, member)


def test_no_order_is_given_before_there_is_a_checkpoint() -> None:
    machine = BatchMachine()
    shard = machine.member(Role.SHARD, 0, "s0")
    machine.member(Role.REPLICA, 0, "r0")
    for _ in range(3):
        for issued in list(machine.state.orders.values()):
            if not isinstance(issued.order, orders.Checkpoint):
                done = orders.Done()
                machine.request(
                    messages.OrderDone(member=issued.member, order=issued.id, result=done)
                )
    machine.tick(1.0)

    kinds = {type(one.order) for one in machine.state.orders.values() if one.member == shard}
    assert kinds == {orders.Checkpoint}
    machine.obey()
    assert machine.batch.course.stage is Stage.COMPUTING
    assert machine.batch.cut_number == 1


def test_a_job_runs_until_the_method_has_converged() -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    for _ in range(20):
        machine.evaluate(first, second)
        machine.tick(1.0)
        machine.obey()

    assert machine.phase() is Phase.COMPLETE
    assert machine.state.reason == "Converged"
    assert np.abs(machine.shard.vectors[PARAMETERS]).max() <= 1e-5
    evaluations = machine.batch.course.method.progress.evaluations
    assert machine.state.data.epochs_done == evaluations
    assert machine.state.samples == 32 * evaluations


def test_a_group_is_given_again_until_its_replica_says_that_it_has_it() -> None:
    machine = BatchMachine()
    _, first, _ = machine.running()
    (lease,) = machine.ask(first)

    assert machine.ask(first) == (lease,)
    (other,) = machine.ask(first, lease.attempt)
    assert (lease.group, other.group) == (0, 1)
    assert (lease.portions, other.portions) == ((0, 2), (2, 4))
    assert machine.ask(first, lease.attempt, other.attempt) == ()


def test_who_is_idle_gets_a_copy_and_the_first_result_counts() -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    (lease,) = machine.ask(first)
    machine.do(first, machine.ask(first, lease.attempt)[0])
    (copy,) = machine.ask(second)
    assert copy.group == lease.group

    machine.do(second, copy)
    assert machine.batch.course.stage is Stage.MEASURING
    machine.do(first, lease)
    machine.obey()

    assert machine.batch.all_copies == 1
    assert machine.batch.course.method.progress.evaluations == 1


def test_nobody_can_say_that_anothers_attempt_is_done() -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    (lease,) = machine.ask(first)

    machine.say(second, lease, 1.0)

    assert machine.batch.course.evaluation.winners == {}


def test_the_group_of_a_silent_replica_goes_to_another() -> None:
    machine = BatchMachine(lease_seconds=5.0)
    shard, first, second = machine.running()
    (lease,) = machine.ask(first)
    for _ in range(2):
        machine.now += 3.0
        machine.heartbeat(second)
        machine.heartbeat(shard)
    machine.tick()

    assert [one.group for one in machine.ask(second)] == [lease.group]
    assert machine.batch.all_requeued == 1


def test_a_shard_that_is_out_of_step_makes_all_return_to_the_checkpoint() -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    before = machine.batch.course.evaluation.number
    machine.failing = orders.OrderFailed(message="lost", why=orders.WhyFailed.OUT_OF_STEP)
    machine.evaluate(first, second)

    assert machine.returned == [1]
    assert machine.batch.course.stage is Stage.COMPUTING
    assert machine.batch.course.order.number == 1
    assert machine.batch.course.evaluation.number > before
    assert machine.batch.returns == 1


def test_a_shard_that_cannot_do_an_order_fails_the_job() -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    machine.failing = orders.OrderFailed(message="no memory")
    machine.evaluate(first, second)

    assert machine.phase() is Phase.FAILED
    assert machine.state.message == "shard-0: no memory"


def test_without_checkpoints_a_lost_shard_fails_the_job() -> None:
    machine = BatchMachine(durability=Durability.NONE)
    machine.running()
    died = messages.MemberDied(role=Role.SHARD, index=0, pid=2, exit_code=-9)
    machine.request(died)

    assert machine.phase() is Phase.FAILED
    assert machine.state.reason == messages.FailureReason.SHARD_LOST


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_at_the_first_point_fails_the_job(loss: float) -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    machine.evaluate(first, second, loss=loss)

    assert machine.phase() is Phase.FAILED
    assert machine.state.reason == messages.FailureReason.DIVERGED
    assert "first point" in machine.state.message


def test_a_stop_drops_the_evaluation_under_way() -> None:
    machine = BatchMachine()
    _, first, _ = machine.running()
    machine.ask(first)
    machine.request(messages.Stop(reason="enough"))
    machine.obey()

    assert machine.phase() is Phase.STOPPED
    assert machine.state.last_checkpoint == 2


def test_a_loop_with_its_own_data_is_refused() -> None:
    machine = BatchMachine()
    machine.running()
    reply = machine.request(
        messages.Join(
            role=Role.REPLICA,
            index=None,
            instance="loop",
            pid=1,
            layout=machine.state.layout,
        )
    )

    assert isinstance(reply, messages.Refused)
    assert reply.reason is messages.RefusalReason.NOT_ALLOWED
