"""In whose name the coordinator hears whom."""

from typing import Any

import pytest

from builders.control_members import a_join
from builders.machines import Machine
from disttrain.coordinator.decisions.speaking import impostor
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import NO_PROGRESS, LostUpdates, MemberId
from disttrain.coordinator.protocol.reports import ReplicaReport, ShardReport
from disttrain.job.identity import LOOPS, Identity
from disttrain.transport.header import Role

FIRST, SECOND = Identity("uid", "replica", 0), Identity("uid", "replica", 1)
"""On one machine."""
POD_A, POD_B = (Identity("uid", "replica", instance=f"pod-{name}.1") for name in "ab")
"""In a cluster, by certificates that do not say where the pod is."""
AT_A, AT_B = (pod._replace(place=name) for pod, name in zip((POD_A, POD_B), "ab", strict=True))
"""By those that do."""


def asks(member: MemberId) -> messages.RequestWork:
    return messages.RequestWork(member=member, held=0, last_lease=0, progress=NO_PROGRESS)


def a_place(name: str, process: int = 1, **more: Any) -> messages.Join:
    return a_join(Role.REPLICA, None, f"pod-{name}.{process}.0", place=name, **more)


def joined(machine: Machine, join: messages.Join) -> MemberId:
    reply = machine.request(join)
    assert isinstance(reply, messages.Joined), reply
    return reply.member


def test_a_replica_asks_and_leaves_in_its_own_name_alone() -> None:
    machine = Machine()
    machine.member(Role.SHARD, 0, "shard")
    first, second = (
        machine.member(Role.REPLICA, index, f"incarnation {index}") for index in (0, 1)
    )
    for request in (
        asks(first),
        messages.Heartbeat(member=first),
        messages.Leave(member=first, reason="it says so"),
        messages.Leave(member=MemberId(role=Role.REPLICA, index=0, incarnation=99), reason=""),
    ):
        assert impostor(machine.state, FIRST, request) == ""
        assert impostor(machine.state, None, request) == ""
        assert "of replica-1 does not speak for replica-0" in impostor(
            machine.state, SECOND, request
        )
    assert impostor(machine.state, SECOND, asks(second)) == ""


def test_on_one_machine_a_replica_joins_as_the_one_that_it_is() -> None:
    state = Machine().state
    assert impostor(state, SECOND, a_join(Role.REPLICA, 1, "any")) == ""
    assert impostor(state, SECOND, a_join(Role.REPLICA, 0, "any"))
    assert impostor(state, SECOND, a_join(Role.REPLICA, None, "any"))


def test_pods_speak_for_the_member_that_they_joined_as() -> None:
    machine = Machine()
    machine.member(Role.SHARD, 0, "shard")
    one, two = joined(machine, a_place("a")), joined(machine, a_place("b"))
    assert impostor(machine.state, POD_A, asks(one)) == ""
    assert impostor(machine.state, POD_B, asks(two)) == ""
    assert "pod-b.1 does not speak for replica-0 of pod-a.1.0" in impostor(
        machine.state, POD_B, asks(one)
    )


def test_the_next_incarnation_in_a_pod_speaks_for_the_member_and_the_one_before_no_more() -> None:
    machine = Machine()
    machine.member(Role.SHARD, 0, "shard")
    before = joined(machine, a_place("a"))
    again = Identity("uid", "replica", instance="pod-a.2")
    assert impostor(machine.state, again, a_place("a", process=2)) == ""
    after = joined(machine, a_place("a", process=2))
    assert (after.index, after.incarnation) == (before.index, before.incarnation + 1)
    assert impostor(machine.state, again, asks(after)) == ""
    assert impostor(machine.state, POD_A, asks(after))


@pytest.mark.parametrize(
    ("sender", "join"),
    [
        # At the place of another pod, whose replica would end.
        (POD_B, a_join(Role.REPLICA, None, "pod-b.1.0", place="a")),
        # A second member of one pod.
        (POD_A, a_join(Role.REPLICA, None, "pod-a.1.7", place="elsewhere")),
        (POD_A, a_join(Role.REPLICA, None, "pod-a.1.7")),
        # By the index of another, which names itself to nobody.
        (POD_B, a_join(Role.REPLICA, 0, "pod-b.1.0")),
        (POD_B, a_join(Role.REPLICA, 0, "pod-b.1.0", place="b")),
        (Identity("uid", "replica", instance=LOOPS), a_join(Role.REPLICA, 0, "loop.1")),
        # By an instance of another.
        (POD_B, a_place("a")),
        (POD_B, a_join(Role.SHARD, 0, "pod-b.1.0")),
    ],
)
def test_a_pod_joins_as_one_member_at_its_own_place(sender: Identity, join: messages.Join) -> None:
    machine = Machine()
    joined(machine, a_place("a"))
    assert impostor(machine.state, sender, join)


def left(machine: Machine, join: messages.Join) -> MemberId:
    member = joined(machine, join)
    machine.request(messages.Leave(member=member, reason="for a while"))
    return member


def test_nobody_keeps_out_a_replica_that_has_left_by_its_place() -> None:
    machine = Machine()
    machine.member(Role.SHARD, 0, "shard")
    # Neither lives: who has which place is not to be told from the members.
    left(machine, a_place("a"))
    left(machine, a_place("b"))
    for place in ("a", "", "elsewhere"):
        forged = a_join(Role.REPLICA, None, "pod-b.1.1", place=place)
        assert "pod-b.1 at b does not speak for replica of pod-b.1.1" in impostor(
            machine.state, AT_B, forged
        )
    again = a_place("a", process=2)
    assert impostor(machine.state, AT_A._replace(instance="pod-a.2"), again) == ""


def test_a_pod_gets_its_place_back_from_whoever_was_there_by_an_older_certificate() -> None:
    machine = Machine()
    machine.member(Role.SHARD, 0, "shard")
    posing = a_join(Role.REPLICA, None, "pod-b.1.0", place="a")
    assert impostor(machine.state, POD_B, posing) == ""
    before = joined(machine, posing)
    assert impostor(machine.state, POD_A, a_place("a"))
    assert impostor(machine.state, AT_A, a_place("a")) == ""
    after = joined(machine, a_place("a"))
    assert (after.index, after.incarnation) == (before.index, before.incarnation + 1)


@pytest.mark.parametrize("sender", [AT_A, AT_B])
def test_a_pod_whose_certificate_says_where_it_is_joins_and_speaks(sender: Identity) -> None:
    machine = Machine()
    machine.member(Role.SHARD, 0, "shard")
    join = a_place(sender.place)
    assert impostor(machine.state, sender, join) == ""
    assert impostor(machine.state, sender, asks(joined(machine, join))) == ""
    assert impostor(machine.state, sender, a_join(Role.REPLICA, 0, join.instance, place="a"))


def test_loops_of_ones_own_share_a_certificate_and_speak_for_no_replica_of_the_job() -> None:
    machine = Machine()
    machine.running()
    loops = Identity("uid", "replica", instance=LOOPS)
    for name in ("loop.1", "loop.2"):
        join = a_join(Role.REPLICA, None, name, samples=None)
        assert impostor(machine.state, loops, join) == ""
        assert impostor(machine.state, loops, asks(joined(machine, join))) == ""
    assert impostor(machine.state, loops, asks(machine.state.replicas[0].member))


def test_who_has_no_name_of_a_member_to_say_is_heard_by_its_role() -> None:
    state, launcher = Machine().state, Identity("uid", "launcher")
    assert impostor(state, launcher, messages.Stop(reason="ctrl-C")) == ""
    assert impostor(state, launcher, messages.Status()) == ""


def test_nobody_reports_what_only_another_role_knows() -> None:
    machine = Machine()
    shard, replica, _ = machine.running()
    before = machine.state.totals.updates_lost.copy()
    lost = ShardReport(lost=(LostUpdates(index=1, incarnation=1, lost=7),))
    machine.request(messages.Heartbeat(member=replica, shard=lost))
    assert machine.state.totals.updates_lost == before
    assert replica not in machine.coordinator.watch.shards

    machine.request(messages.Heartbeat(member=shard, replica=ReplicaReport(steps=7)))
    assert shard not in machine.coordinator.watch.replicas
