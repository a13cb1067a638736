"""Parsing what comes from the network."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import placements
from builders.control_members import LAYOUT
from disttrain.coordinator.errors import MessageRefused
from disttrain.coordinator.protocol import commands, messages, payloads
from disttrain.coordinator.protocol.fields import MemberId, Position, Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.transport.header import Role

MEMBER = MemberId(role=Role.REPLICA, index=3, incarnation=7)


@pytest.mark.parametrize(
    "request_",
    [
        messages.Join(role=Role.REPLICA, index=None, instance="a", pid=1, layout=LAYOUT),
        messages.Heartbeat(member=MEMBER, replica=ReplicaReport(staleness=(1, 2))),
        messages.RequestWork(
            member=MEMBER,
            held=1,
            last_lease=4,
            progress=Progress(position=Position(lease=4, offset=2), abandoned=(Position(),)),
        ),
        messages.CommandDone(
            member=MEMBER,
            order=9,
            result=commands.Evaluated(sums={"a": 1.0}, samples=2, loss=float("inf")),
        ),
        messages.MemberDied(role=Role.SHARD, index=0, pid=5, exit_code=-9),
        messages.Stop(reason="Ctrl-C"),
    ],
)
def test_requests_survive_the_way(request_: messages.Request) -> None:
    assert payloads.parse_request(payloads.encode_request(request_)) == request_


def test_commands_and_replies_survive_the_way() -> None:
    command = commands.NumberedCommand(
        id=1,
        order=commands.Configure(
            placement=placements.a_placement({placements.PARAMETERS: 64}, 2, ("momentum",))
        ),
    )
    assert payloads.parse_command(payloads.encode_command(command)) == command
    reply = messages.HeartbeatReply(orders=(command,), lost_leases=(3,))
    assert payloads.parse_reply(payloads.encode_reply(reply)) == reply


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        (b"", "Invalid JSON"),
        (b"[" * 100_000, "Invalid JSON"),
        (b'{"kind":"unknown"}', "unknown"),
        (b'{"kind":"status","more":1}', "status.more"),
        (b'{"kind":"stop","reason":3}', "stop.reason"),
        (
            b'{"kind":"heartbeat","member":{"role":3,"index":"0","incarnation":1}}',
            "heartbeat.member.index",
        ),
        (
            b'{"kind":"heartbeat","member":{"role":3,"index":-1,"incarnation":1}}',
            "heartbeat.member.index",
        ),
        (b" " * (payloads.LIMIT_BYTES + 1), "at most"),
    ],
)
def test_what_is_no_message_is_refused_with_its_place(payload: bytes, place: str) -> None:
    with pytest.raises(MessageRefused, match=place):
        payloads.parse_request(payload)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused_and_nothing_else(payload: bytes) -> None:
    with pytest.raises(MessageRefused):
        payloads.parse_request(payload)
