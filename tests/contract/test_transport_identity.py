"""Certificates of single processes over encrypted connections: whose they are, and how they end."""

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from builders.transports import (
    PATIENCE,
    a_config,
    a_header,
    meet,
    must_be_asked,
    must_receive,
    opened,
)
from disttrain.job import certificates
from disttrain.job.credentials import Credentials, RenewedCredentials
from disttrain.job.identity import Identity
from disttrain.transport.config import TransportKind
from disttrain.transport.errors import Refusal
from disttrain.transport.header import Role, Verb
from disttrain.transport.interface import Channel, Listener, Transport

JOB = "job-1"
AUTHORITY = certificates.new_authority()
DAY = timedelta(hours=24)
REPLICA = Identity(JOB, "replica", 1, 2, "pod-a.1")
COORDINATOR = Identity(JOB, "coordinator", 0)
SHORT = timedelta(seconds=5)
"""Time enough to shake hands on a busy machine."""


def issued(identity: Identity, lifetime: timedelta = DAY) -> Credentials:
    """What a process gets that asks for itself."""
    asked = certificates.new_request()
    signed = AUTHORITY.sign(asked.text, identity, lifetime)
    return Credentials(certificate=signed, key=asked.key, authority=AUTHORITY.certificate)


@pytest.fixture
def listener() -> Iterator[Listener]:
    with opened(
        a_config(TransportKind.TCP, role=Role.COORDINATOR, credentials=issued(COORDINATOR))
    ) as serving:
        yield serving.listen("tcp://127.0.0.1:0")


def talks(channel: Channel, listener: Listener) -> bool:
    """Whether a message comes through, or one of the two sides refuses the other."""
    channel.send(a_header(Verb.CONTROL_REQUEST))
    before = num_refusals(channel, listener)
    end = time.monotonic() + PATIENCE
    while num_refusals(channel, listener) == before:
        assert time.monotonic() < end
        assert channel.receive(0.0) is None
        if listener.receive(0.01) is not None:
            return True
    return False


def num_refusals(channel: Channel, listener: Listener) -> int:
    return sum(channel.refused.values()) + sum(listener.refused.values())


def talks_anew(
    sending: Transport, listener: Listener, role: Role = Role.COORDINATOR, index: int | None = None
) -> bool:
    """The same over a connection of its own."""
    with closing(sending.connect(listener.address, role, index)) as channel:
        return talks(channel, listener)


def test_a_request_tells_who_has_sent_it_down_to_the_incarnation(listener: Listener) -> None:
    with opened(
        a_config(TransportKind.TCP, role=Role.REPLICA, credentials=issued(REPLICA))
    ) as sending:
        channel = sending.connect(listener.address)
        meet(channel, listener)
        channel.send(a_header(Verb.CONTROL_REQUEST))
        assert must_be_asked(listener).identity == REPLICA


@pytest.mark.parametrize(
    "shown",
    [
        issued(REPLICA, timedelta(seconds=-1)),
        issued(REPLICA._replace(job_uid="job-2")),
        issued(COORDINATOR),
        issued(REPLICA._replace(role="trainer")),
    ],
    ids=["expired", "another job", "another role", "no role"],
)
def test_other_certificates_of_the_same_authority_are_not_heard(
    listener: Listener, shown: Credentials
) -> None:
    with opened(a_config(TransportKind.TCP, role=Role.REPLICA, credentials=shown)) as sending:
        assert not talks_anew(sending, listener)
    assert set(listener.refused) <= {Refusal.HANDSHAKE, Refusal.CERTIFICATE, Refusal.ROLE}
    assert listener.refused


def test_a_listener_whose_certificate_has_expired_is_not_spoken_to() -> None:
    expired = issued(COORDINATOR, timedelta(seconds=-1))
    with (
        opened(a_config(TransportKind.TCP, role=Role.COORDINATOR, credentials=expired)) as serving,
        opened(
            a_config(TransportKind.TCP, role=Role.REPLICA, credentials=issued(REPLICA))
        ) as sending,
    ):
        listener = serving.listen("tcp://127.0.0.1:0")
        assert not talks_anew(sending, listener)


def test_a_replica_speaks_to_no_other_shard_than_it_means() -> None:
    first, replica = issued(Identity(JOB, "shard", 0)), issued(REPLICA)
    with (
        opened(a_config(TransportKind.TCP, role=Role.SHARD, credentials=first)) as serving,
        opened(a_config(TransportKind.TCP, role=Role.REPLICA, credentials=replica)) as sending,
    ):
        shard = serving.listen("tcp://127.0.0.1:0")
        assert not talks_anew(sending, shard, Role.SHARD, 1)
        assert talks_anew(sending, shard, Role.SHARD, 0)


def test_certificates_are_renewed_under_traffic_and_nobody_is_disconnected() -> None:
    """Both sides begin with certificates of seconds; what is open outlives them."""
    ours, theirs = (RenewedCredentials(issued(one, SHORT)) for one in (COORDINATOR, REPLICA))
    late = theirs.current
    until = certificates.validity(late.certificate).until
    with (
        opened(a_config(TransportKind.TCP, role=Role.COORDINATOR, credentials=ours)) as serving,
        opened(a_config(TransportKind.TCP, role=Role.REPLICA, credentials=theirs)) as sending,
        opened(a_config(TransportKind.TCP, role=Role.REPLICA, credentials=late)) as not_renewed,
    ):
        listener = serving.listen("tcp://127.0.0.1:0")
        first = sending.connect(listener.address)
        meet(first, listener)
        peers, num_exchanged, end = set(), 0, time.monotonic() + 6 * PATIENCE
        while num_exchanged <= 10 or datetime.now(UTC) < until + timedelta(seconds=0.2):
            assert time.monotonic() < end
            first.send(a_header(Verb.CONTROL_REQUEST, sequence=num_exchanged), bytes(10_000))
            request = must_be_asked(listener)
            peers.add(request.peer)
            assert listener.reply(request, a_header(Verb.CONTROL_REPLY), b"yes")
            must_receive(first)
            num_exchanged += 1
            if num_exchanged == 10:
                ours.current, theirs.current = issued(COORDINATOR), issued(REPLICA)
        assert len(peers) == 1, "the first connection is still the one"

        assert talks_anew(sending, listener)
        assert talks(first, listener)
        assert not talks_anew(not_renewed, listener)
        assert first.refused == {}
