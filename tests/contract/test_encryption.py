"""Whether TCP is encrypted: two processes agree on it, or one refuses the other and both say so."""

import time
from pathlib import Path

import pytest

from builders.transports import (
    PATIENCE,
    a_config,
    a_header,
    credentials,
    meet,
    must_be_asked,
    opened,
)
from disttrain.job.transport import Encryption
from disttrain.transport.config import TransportConfig, TransportKind
from disttrain.transport.errors import InvalidCredentials, Refusal
from disttrain.transport.header import Role, Verb

ANY_PORT = "tcp://127.0.0.1:0"


def a_side(encryption: Encryption, role: Role) -> TransportConfig:
    """A process that was given credentials, and looks at them only where it encrypts."""
    given = credentials()[role]
    return a_config(TransportKind.TCP, role=role, credentials=given, encryption=encryption)


def why_refused(caplog: pytest.LogCaptureFixture) -> set[str]:
    """By whom (`a connection to`, `no connection to`) and why, as they log it."""
    return {
        f"{each.getMessage().split(' tcp://')[0]}: {vars(each)['disttrain_fields']['reason']}"
        for each in caplog.records
    }


@pytest.mark.parametrize("encryption", Encryption)
def test_two_of_the_same_mind_hear_each_other(encryption: Encryption) -> None:
    serving, asking = a_side(encryption, Role.SHARD), a_side(encryption, Role.REPLICA)
    with opened(serving) as there, opened(asking) as here:
        listener = there.listen(ANY_PORT)
        channel = here.connect(listener.address, Role.SHARD)
        meet(channel, listener)
        channel.send(a_header(Verb.CONTROL_REQUEST), b"loss 0.5")
        assert bytes(must_be_asked(listener).payload) == b"loss 0.5"


NO_TLS = (
    f"{Refusal.ENCRYPTION}: the peer speaks no TLS; does it run with spec.transport.encryption "
    "none?"
)
TLS = (
    f"{Refusal.ENCRYPTION}: the peer speaks TLS, and this process runs with "
    "spec.transport.encryption none"
)


@pytest.mark.parametrize(
    ("there", "here", "listener_says", "channel_says"),
    [
        (Encryption.TLS, Encryption.NONE, NO_TLS, TLS),
        (Encryption.NONE, Encryption.TLS, TLS, NO_TLS),
    ],
)
def test_one_that_encrypts_and_one_that_does_not_refuse_each_other_and_say_why(
    there: Encryption,
    here: Encryption,
    listener_says: str,
    channel_says: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected = {f"a connection to: {listener_says}", f"no connection to: {channel_says}"}
    with opened(a_side(there, Role.SHARD)) as serving, opened(a_side(here, Role.REPLICA)) as asking:
        listener = serving.listen(ANY_PORT)
        channel = asking.connect(listener.address, Role.SHARD)
        channel.send(a_header(Verb.CONTROL_REQUEST))
        end = time.monotonic() + PATIENCE
        while why_refused(caplog) != expected and time.monotonic() < end:
            assert channel.receive(0.0) is None
            assert listener.receive(0.01) is None
        assert set(listener.refused) == {Refusal.ENCRYPTION}
    assert why_refused(caplog) == expected


def test_nothing_is_sent_for_want_of_credentials() -> None:
    config = a_config(TransportKind.TCP, role=Role.REPLICA, encryption=Encryption.TLS)
    with opened(config) as transport:
        with pytest.raises(InvalidCredentials, match=r"no credentials for tcp://.*encryption none"):
            transport.listen(ANY_PORT)
        with pytest.raises(InvalidCredentials, match="no credentials for"):
            transport.connect("tcp://127.0.0.1:9")


@pytest.mark.parametrize("kind", TransportKind)
def test_a_unix_socket_needs_none(kind: TransportKind, tmp_path: Path) -> None:
    with opened(a_config(kind, encryption=Encryption.TLS)) as transport:
        listener = transport.listen(f"ipc://{tmp_path}/s")
        channel = transport.connect(listener.address)
        meet(channel, listener)
