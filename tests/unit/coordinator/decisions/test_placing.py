"""Who holds what: decided once in a run, and told to everybody."""

from dataclasses import replace

from builders.batch_machines import batch_method
from builders.control_members import LAYOUT, a_join
from builders.machines import Machine, asynchronous
from disttrain.coordinator.journal import job_entries, resume, state
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.protocol import commands, messages
from disttrain.state.layout import ModelLayout
from disttrain.state.placement import Placement, place
from disttrain.state.vector import SINGLE
from disttrain.transport.header import Role


def asked(machine: Machine) -> Placement | None:
    reply = machine.request(messages.AskPlacement())
    assert isinstance(reply, messages.Placed)
    return reply.placement


def resumed(machine: Machine) -> State:
    """As the next run begins from this one's ledger."""
    ledger = state.from_json(state.to_json(machine.state))
    return resume.from_ledger(ledger, "checkpoint", 1)


def test_nothing_is_placed_before_the_model_is_known() -> None:
    machine = Machine()
    assert asked(machine) is None
    machine.member(Role.SHARD, 0, "s0")
    assert asked(machine) is None

    machine.member(Role.REPLICA, 0, "r0")

    assert asked(machine) == place(LAYOUT, 1)


def test_a_model_of_more_partitions_than_replicas_have_is_refused() -> None:
    machine = Machine(shards=1)
    (spec,) = LAYOUT.tensors
    other = replace(spec, name="other", vector=spec.vector._replace(partition=1))
    divided = ModelLayout(tensors=(spec, other))

    reply = machine.request(replace(a_join(Role.REPLICA, 0, "r0"), layout=divided))

    assert isinstance(reply, messages.Refused)
    assert reply.reason is messages.RefusalReason.WRONG_MODEL
    assert asked(machine) is None


def test_members_and_shards_are_told_one_table_and_the_size_of_the_data() -> None:
    machine = Machine(shards=2, kept=("momentum",))
    machine.member(Role.SHARD, 0, "s0")
    first = machine.join(Role.REPLICA, 0, "r0")
    late = machine.join(Role.SHARD, 1, "s1")

    (issued,) = [
        issued
        for issued in machine.state.orders.values()
        if isinstance(issued.order, commands.Configure) and issued.member.index == 0
    ]
    told = machine.coordinator.numbered(issued).order
    assert isinstance(told, commands.Configure)
    assert issued.order == commands.Configure()
    assert isinstance(first, messages.Joined)
    assert isinstance(late, messages.Joined)
    assert told.placement == first.placement == late.placement == asked(machine)
    assert asked(machine) == place(LAYOUT, 2, ("momentum",))
    samples = machine.state.data.samples
    assert told.train_samples == first.train_samples == late.train_samples == samples > 0


def test_the_table_is_journaled_once() -> None:
    machine = Machine()
    decision = machine.coordinator.request(
        messages.Join(
            role=Role.REPLICA, index=0, instance="r", pid=1, layout=LAYOUT, train_samples=32
        ),
        machine.now,
    )
    made = [entry for entry in decision.decided if isinstance(entry, job_entries.Placed)]
    assert [entry.placement for entry in made] == [machine.state.placement]
    again = machine.coordinator.request(messages.AskPlacement(), machine.now)
    assert not again.decided


def test_a_run_that_goes_on_as_it_was_keeps_its_table() -> None:
    machine = Machine(kept=("momentum",))
    machine.running()
    before = asked(machine)

    again = Machine(resumed(machine), kept=("momentum",))

    assert asked(again) == before
    assert before is not None
    assert before.elements(SINGLE.beside("momentum")) == LAYOUT.elements(SINGLE)


def test_another_number_of_shards_is_another_table() -> None:
    machine = Machine(kept=("momentum",))
    machine.running()

    again = Machine(resumed(machine), kept=("momentum",), shards=3)
    joined = again.join(Role.REPLICA, 0, "first to come")

    made = place(LAYOUT, 3, ("momentum",), epoch=1)
    assert isinstance(joined, messages.Joined)
    assert joined.placement == made == asked(again)


def test_other_vectors_to_keep_are_another_table() -> None:
    machine = Machine(kept=("momentum",))
    machine.running()
    assert asked(Machine(resumed(machine), kept=("sum",))) == place(LAYOUT, 1, ("sum",), epoch=1)


def test_a_warm_start_and_what_follows_have_one_table() -> None:
    kept = ("sum", "trial")
    machine = Machine(None, asynchronous(kept=kept), batch_method(kept=kept))
    machine.running()
    assert asked(machine) == place(LAYOUT, 1, ("sum", "trial"))


(_WHOLE,) = LAYOUT.tensors
_HALF = replace(_WHOLE, shape=(32,), whole=(64,), begins=(0,))
IN_TWO = ModelLayout(
    tensors=(
        _HALF,
        replace(_HALF, begins=(32,), vector=SINGLE._replace(partition=1)),
    )
)


def join_whole(machine: Machine, layout: ModelLayout) -> messages.Reply:
    """The first process of a replica of two; the other one has told nothing."""
    return machine.join(Role.REPLICA, 0, "first", layout=layout, partitions=2)


def test_a_run_that_goes_on_waits_for_replicas_that_say_how_they_divide_the_model() -> None:
    before = Machine(shards=2)
    before.running()
    again = Machine(resumed(before), shards=2, partitions=2)
    ask = again.coordinator.request(messages.AskPlacement(), again.now)
    assert ask.reply is None
    assert not ask.decided

    joined = join_whole(again, IN_TWO)

    made = place(IN_TWO, 2, epoch=1)
    assert isinstance(joined, messages.Joined)
    assert joined.placement == made
    assert again.request(messages.AskPlacement()) == messages.Placed(placement=made, layout=IN_TWO)


def test_replicas_that_divide_the_model_as_before_get_the_table_of_before() -> None:
    machine = Machine(shards=2, partitions=2)
    join_whole(machine, IN_TWO)
    before = asked(machine)

    again = Machine(resumed(machine), shards=2, partitions=2)
    assert again.coordinator.request(messages.AskPlacement(), again.now).reply is None
    join_whole(again, IN_TWO)

    assert asked(again) == before == place(IN_TWO, 2)


def test_a_model_that_is_no_longer_divided_waits_for_its_replica_too() -> None:
    machine = Machine(shards=2, partitions=2)
    join_whole(machine, IN_TWO)

    again = Machine(resumed(machine), shards=2)
    assert again.coordinator.request(messages.AskPlacement(), again.now).reply is None
    again.join(Role.REPLICA, 0, "alone")

    assert asked(again) == place(LAYOUT, 2, epoch=1)


def test_another_model_is_no_other_division() -> None:
    machine = Machine()
    machine.running()
    again = Machine(resumed(machine), shards=2, partitions=2)
    other = replace(_HALF, shape=(31,), whole=(63,))
    rest = replace(other, shape=(32,), begins=(31,), vector=SINGLE._replace(partition=1))

    refused = join_whole(again, ModelLayout(tensors=(other, rest)))

    assert isinstance(refused, messages.Refused)
    assert refused.reason is messages.RefusalReason.WRONG_MODEL


def test_who_divides_the_model_otherwise_than_the_first_replica_of_a_run_is_refused() -> None:
    machine = Machine(shards=2, partitions=2)
    join_whole(machine, IN_TWO)
    uneven = replace(_HALF, shape=(16,))
    rest = replace(uneven, shape=(48,), begins=(16,), vector=SINGLE._replace(partition=1))

    refused = machine.join(
        Role.REPLICA, 1, "other", layout=ModelLayout(tensors=(uneven, rest)), partitions=2
    )

    assert isinstance(refused, messages.Refused)
    assert refused.reason is messages.RefusalReason.WRONG_MODEL
