"""How the coordinator ends the warm start of a batch method, and begins the method there."""

from builders.batch_machines import BatchMachine, batch_method
from builders.machines import asynchronous
from disttrain.coordinator.protocol import commands, fields, messages
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.status import sections
from disttrain.coordinator.strategies.batch import status as batch_status
from disttrain.job.stop import Stop
from disttrain.sandblaster.batch.driver import Stage
from disttrain.transport.header import Role

SAMPLES = 44
"""More than the 32 of the data."""


def a_machine() -> BatchMachine:
    first = asynchronous(evaluation=None, stop=Stop(samples=SAMPLES))
    return BatchMachine(first, batch_method())


def issued(machine: BatchMachine, kind: type[object]) -> list[MemberId]:
    found = machine.state.orders.values()
    return [command.member for command in found if isinstance(command.order, kind)]


def stage(machine: BatchMachine) -> str:
    told = batch_status.batch(machine.state)
    assert told is not None
    return str(told["stage"])


def processed() -> tuple[BatchMachine, MemberId, list[MemberId]]:
    """A machine, its shard and replicas after all of the warm start; its last commands are open."""
    machine = a_machine()
    shard, *replicas = machine.running()
    assert stage(machine) == "warm_start"
    while any(machine.process(replica) for replica in replicas):
        pass
    return machine, shard, replicas


def switched() -> tuple[BatchMachine, list[MemberId]]:
    """A machine and its replicas after the method has begun."""
    machine, _, replicas = processed()
    machine.obey()
    machine.tick()
    machine.obey()
    return machine, replicas


def test_the_object_tells_the_progress_of_the_whole_job() -> None:
    machine, _, _ = processed()
    coordinator = machine.coordinator
    told = sections.of_object(machine.state, coordinator.stages, coordinator.watch, machine.now)
    assert told["training"]["progressPercent"] == 0


def test_exactly_its_samples_are_given_out_and_the_method_begins_at_a_checkpoint() -> None:
    machine, _, replicas = processed()
    assert machine.state.samples == SAMPLES
    assert issued(machine, commands.Drain) == replicas
    assert machine.state.batch is None

    machine.obey()
    machine.tick()
    machine.obey()
    assert machine.returned == [machine.state.last_checkpoint]
    assert machine.batch.course.stage is Stage.COMPUTING
    assert machine.batch.cut_number == machine.state.last_checkpoint
    assert machine.batch.returns == 0
    assert all(group.left_warm_start for group in machine.state.replicas.values())

    machine.evaluate(*replicas)
    assert machine.state.samples == SAMPLES + 32
    assert machine.state.data.epochs_done == 2


def test_a_replica_that_joins_later_leaves_the_warm_start_before_it_gets_a_group() -> None:
    machine, _ = switched()

    machine.request(messages.MemberDied(role=Role.REPLICA, index=0, pid=2, exit_code=-9))
    late = machine.member(Role.REPLICA, 0, "r0 again")
    assert machine.ask(late) == ()
    assert machine.work(late).wait

    machine.tick()
    assert issued(machine, commands.LeaveWarmStart) == [late]
    machine.obey()
    assert machine.ask(late) != ()


def test_a_shard_that_dies_before_the_checkpoint_belongs_to_the_warm_start() -> None:
    machine, shard, _ = processed()
    machine.muted.add(shard)
    machine.obey()
    machine.tick()
    (asked,) = issued(machine, commands.Checkpoint)
    assert asked == shard

    machine.request(messages.MemberDied(role=Role.SHARD, index=0, pid=2, exit_code=-9))
    assert machine.state.batch is None
    restored = fields.Restored(initialised=True, checkpoint=1, version=1)
    machine.member(Role.SHARD, 0, "s0 again", restored=restored)
    machine.obey()
    for _ in range(2):
        machine.tick(2.0)
        machine.obey()

    assert machine.batch.course.stage is Stage.COMPUTING
    assert machine.batch.incarnations == (2,)
    assert machine.state.samples == SAMPLES


def test_a_shard_that_dies_after_it_returns_with_the_others() -> None:
    machine, _ = switched()
    first = machine.batch.cut_number

    machine.request(messages.MemberDied(role=Role.SHARD, index=0, pid=2, exit_code=-9))
    restored = fields.Restored(initialised=True, checkpoint=first, version=1)
    machine.member(Role.SHARD, 0, "s0 again", restored=restored)
    for _ in range(2):
        machine.tick(1.0)
        machine.obey()

    assert machine.returned == [first, first]
    assert machine.batch.returns == 1
    assert machine.batch.course.stage is Stage.COMPUTING
