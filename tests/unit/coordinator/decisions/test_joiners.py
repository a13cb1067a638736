"""Replicas that were invited: they get an index of their own, and end nobody's job."""

from dataclasses import replace

import pytest

from builders.control_members import a_join
from builders.machines import Machine
from disttrain.coordinator.decisions.speaking import impostor
from disttrain.coordinator.journal import resume
from disttrain.coordinator.journal.state import from_json, to_json
from disttrain.coordinator.phases import Phase
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.content import Example
from disttrain.coordinator.protocol.messages import RefusalReason
from disttrain.coordinator.protocol.notices import REMOVED, Remove
from disttrain.coordinator.status import status
from disttrain.job import identity
from disttrain.job.identity import Identity, parse
from disttrain.transport.header import Role

PLACE = f"{identity.JOINER}a1"
EXAMPLE = Example(split="train", index=7, digest="ab", length=1.0, sum=0.5)


def test_a_joiner_gets_an_index_behind_the_jobs_own_replicas() -> None:
    machine = Machine(replicas=2)
    machine.running()

    joined = machine.join(Role.REPLICA, None, f"{PLACE}.1", place=PLACE)

    assert isinstance(joined, messages.Joined)
    assert joined.member.index == 2


def test_a_joiner_that_starts_again_has_the_same_index() -> None:
    machine = Machine(replicas=2)
    machine.running()
    machine.join(Role.REPLICA, None, f"{PLACE}.1", place=PLACE)

    again = machine.join(Role.REPLICA, None, f"{PLACE}.2", place=PLACE)

    assert isinstance(again, messages.Joined | messages.ComeAgain)
    assert not [one for one in machine.state.replicas.values() if one.live and one.index > 2]


def test_a_joiner_with_other_data_is_refused_and_the_job_goes_on() -> None:
    machine = Machine(replicas=2)
    machine.running()

    refused = machine.join(Role.REPLICA, None, f"{PLACE}.1", place=PLACE, samples=64)

    assert isinstance(refused, messages.Refused)
    assert refused.reason is RefusalReason.WRONG_DATA
    assert machine.phase() is Phase.RUNNING


def test_a_joiner_whose_data_holds_something_else_is_refused_and_the_job_goes_on() -> None:
    machine = Machine(replicas=2)
    machine.member(Role.SHARD, 0, "s0")
    machine.member(Role.REPLICA, 0, "r0", content=(EXAMPLE,))
    machine.obey()
    kept = from_json(to_json(machine.state))
    other = (replace(EXAMPLE, digest="cd"),)

    refused = machine.join(Role.REPLICA, None, f"{PLACE}.1", place=PLACE, content=other)
    alike = machine.join(Role.REPLICA, None, "joiner-b2.1", place="joiner-b2", content=(EXAMPLE,))

    assert kept.content == (EXAMPLE,)
    assert isinstance(refused, messages.Refused)
    assert refused.reason is RefusalReason.WRONG_DATA
    assert "train example 7 is cd " in refused.message
    assert "spec.task.arguments" in refused.message
    assert isinstance(alike, messages.Joined)
    assert machine.phase() is Phase.RUNNING


def test_of_the_jobs_own_replicas_the_first_one_says_what_the_data_holds() -> None:
    machine = Machine(replicas=2)
    machine.member(Role.REPLICA, 0, "r0", content=(EXAMPLE,))

    machine.member(Role.REPLICA, 1, "r1", content=(replace(EXAMPLE, digest="cd"),))

    assert machine.state.content == (EXAMPLE,)


def test_a_joiner_of_a_resumed_run_waits_until_its_replicas_have_told_their_data() -> None:
    machine = Machine(replicas=2)
    machine.member(Role.REPLICA, 0, "r0", content=(EXAMPLE,))
    resumed = Machine(resume.from_ledger(machine.state, "before", 1), replicas=2)

    early = a_join(Role.REPLICA, None, f"{PLACE}.1", place=PLACE)

    assert resumed.state.layout is not None
    assert resumed.state.content == ()
    assert resumed.coordinator.request(early, resumed.now).reply is None


def test_a_joiner_that_hides_its_data_is_refused_for_it_could_end_the_job_by_a_number() -> None:
    machine = Machine(replicas=2)
    machine.running()

    refused = machine.join(Role.REPLICA, None, f"{PLACE}.1", place=PLACE, samples=None)

    assert isinstance(refused, messages.Refused)
    assert refused.reason is RefusalReason.NOT_ALLOWED


def test_a_job_without_test_data_believes_no_joiner_that_there_is_some() -> None:
    machine = Machine(replicas=2)
    machine.member(Role.SHARD, 0, "s0")
    for index in range(2):
        machine.member(Role.REPLICA, index, f"r{index}", test_samples=None)
    machine.obey()

    machine.member(Role.REPLICA, None, f"{PLACE}.1", place=PLACE, test_samples=10)

    assert machine.state.test_samples == 0


def test_a_joiners_metrics_are_nowhere_on_this_machine() -> None:
    machine = Machine(replicas=2)
    machine.running()
    machine.join(Role.REPLICA, None, f"{PLACE}.1", place=PLACE, metrics_address="127.0.0.1:9090")

    assert machine.state.replicas[2].metrics_address == ""


def test_a_joiner_waits_until_the_jobs_own_replicas_have_told_the_model() -> None:
    machine = Machine(replicas=2)

    early = a_join(Role.REPLICA, None, f"{PLACE}.1", place=PLACE)
    assert machine.coordinator.request(early, machine.now).reply is None


def test_a_joiner_is_nobody_whose_word_counts() -> None:
    machine = Machine(replicas=2)
    machine.running()
    machine.join(Role.REPLICA, None, f"{PLACE}.1", place=PLACE)

    assert machine.state.replicas[2].is_guest
    assert not machine.state.replicas[0].is_guest


def test_a_joiner_that_is_removed_is_a_member_no_more_and_its_work_goes_to_others() -> None:
    machine = Machine(replicas=2)
    machine.running()
    joiner = machine.member(Role.REPLICA, None, f"{PLACE}.1", place=PLACE)
    assert machine.work(joiner).leases

    machine.request(Remove(place=PLACE))
    machine.obey()

    assert not machine.state.replicas[2].live
    assert machine.state.data.held(joiner) == []
    refused = machine.request(messages.Heartbeat(member=joiner))
    assert isinstance(refused, messages.Refused)
    assert refused.reason is RefusalReason.REMOVED
    assert REMOVED in refused.message


def test_a_joiner_that_is_removed_never_joins_again() -> None:
    machine = Machine(replicas=2)
    machine.running()
    machine.member(Role.REPLICA, None, f"{PLACE}.1", place=PLACE)
    machine.request(Remove(place=PLACE))
    kept = from_json(to_json(machine.state))
    assert kept.removed == [PLACE]

    refused = machine.join(Role.REPLICA, None, f"{PLACE}.2", place=PLACE)
    other = machine.join(Role.REPLICA, None, "joiner-b2.1", place="joiner-b2")

    assert isinstance(refused, messages.Refused)
    assert refused.reason is RefusalReason.NOT_ALLOWED
    assert isinstance(other, messages.Joined)
    sender = identity.joiner("uid", "a1")
    assert impostor(machine.state, sender, messages.Status())
    assert not impostor(machine.state, identity.joiner("uid", "b2"), messages.Status())


def test_a_joiner_that_has_started_again_before_its_removal_is_read_is_removed() -> None:
    machine = Machine(replicas=2)
    machine.running()
    machine.member(Role.REPLICA, None, f"{PLACE}.1", place=PLACE)
    machine.request(messages.Leave(member=machine.state.replicas[2].member, reason="SIGTERM"))
    machine.member(Role.REPLICA, None, "joiner-b2.1", place="joiner-b2")
    again = machine.member(Role.REPLICA, None, f"{PLACE}.2", place=PLACE)
    assert again.index == 3

    machine.request(Remove(place=PLACE))

    assert not machine.state.replicas[3].live
    assert machine.state.replicas[3].reason == REMOVED
    assert machine.state.replicas[2].live
    found = machine.coordinator
    told = status.status(found.state, found.stages, found.watch, machine.now)
    assert told["removed"] == [PLACE]


def test_a_joiner_that_is_dead_can_be_removed_and_a_later_one_stays() -> None:
    machine = Machine(replicas=2)
    machine.running()
    first = machine.member(Role.REPLICA, None, f"{PLACE}.1", place=PLACE)
    machine.request(messages.Leave(member=first, reason="SIGTERM"))
    machine.request(Remove(place=PLACE))
    assert machine.state.removed == [PLACE]
    later = machine.member(Role.REPLICA, None, "joiner-b2.1", place="joiner-b2")

    machine.request(Remove(place=PLACE))

    assert later.index == first.index
    assert machine.state.replicas[2].live


def test_a_replica_of_the_jobs_own_is_not_removed() -> None:
    machine = Machine(replicas=2)
    machine.running()
    machine.member(Role.REPLICA, 0, "r0 again", place="pod-0")

    machine.request(Remove(place="pod-0"))

    assert machine.state.replicas[0].live
    assert machine.state.removed == []


@pytest.mark.parametrize(
    ("instance", "place"), [("joiner-b2.1", PLACE), (f"{PLACE}.1", "joiner-b2"), ("other", PLACE)]
)
def test_a_joiner_speaks_for_no_other_joiner(instance: str, place: str) -> None:
    machine = Machine(replicas=2)
    machine.running()
    sender = identity.joiner("uid", "a1")

    assert impostor(machine.state, sender, a_join(Role.REPLICA, None, instance, place=place))


def test_a_joiner_takes_no_index_of_its_own_choice() -> None:
    machine = Machine(replicas=2)
    machine.running()
    wanted = a_join(Role.REPLICA, 0, f"{PLACE}.1", place=PLACE)

    assert impostor(machine.state, identity.joiner("uid", "a1"), wanted)


def test_the_certificate_of_a_joiner_says_who_it_is() -> None:
    sender = identity.joiner("uid", "a1")

    assert sender == Identity("uid", "replica", instance=PLACE, place=PLACE)
    assert parse(sender.uris[1]) == sender
