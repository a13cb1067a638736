"""Questions about keys, and their answers."""

import os
import threading

import pytest
import zmq
from zmq.utils import z85

from disttrain.transport import authentication
from disttrain.transport.header import Role

KEY = zmq.curve_keypair()[0]
ALLOWED = {KEY.decode(): Role.REPLICA}


def a_question(
    *, version: bytes = b"1.0", mechanism: bytes = b"CURVE", key: bytes = KEY
) -> list[bytes]:
    return [version, b"7", b"", b"127.0.0.1", b"", mechanism, z85.decode(key)]


def test_an_allowed_key_gets_its_role() -> None:
    answer = authentication.decide(a_question(), ALLOWED)
    assert answer == [b"1.0", b"7", b"200", b"", str(int(Role.REPLICA)).encode(), b""]


@pytest.mark.parametrize(
    "question",
    [
        a_question(key=zmq.curve_keypair()[0]),
        a_question(mechanism=b"PLAIN"),
        a_question(version=b"2.0"),
        a_question()[:-1],
    ],
)
def test_everything_else_is_denied(question: list[bytes]) -> None:
    assert authentication.decide(question, ALLOWED)[2] == b"400"


def test_the_process_ends_when_keys_cannot_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(os, "abort", ended.set)
    with zmq.Context() as context:
        authentication.start(context, {})
        question = context.socket(zmq.REQ)
        question.linger = 0
        question.connect("inproc://zeromq.zap.01")
        question.send(b"no question at all")
        assert ended.wait(10)
        question.close()
