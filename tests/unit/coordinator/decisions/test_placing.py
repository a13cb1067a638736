"""Who holds what: decided once in a run, and told to everybody."""

from builders.batch_machines import batch_method
from builders.control_members import LAYOUT
from builders.machines import Machine, asynchronous
from disttrain.coordinator.journal import job_entries, resume, state
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.protocol import commands, messages
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
