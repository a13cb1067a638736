"""Who may connect under CURVE: a thread that answers questions about keys (ZeroMQ RFC 27)."""

import os
import threading
from collections.abc import Mapping

import zmq
from zmq.utils import z85

from disttrain.telemetry import logs
from disttrain.transport.header import Role

LOG = logs.get(__name__)

_QUESTIONS = "inproc://zeromq.zap.01"
_VERSION = b"1.0"


def start(context: "zmq.Context[zmq.Socket[bytes]]", allowed: Mapping[str, Role]) -> None:
    """Admits the keys in `allowed` to every listener of the context; ends with the context."""
    own: zmq.Context[zmq.Socket[bytes]] = zmq.Context.shadow(context.underlying)
    socket = own.socket(zmq.REP)
    socket.setsockopt(zmq.LINGER, 0)
    socket.bind(_QUESTIONS)
    threading.Thread(target=_answer, args=(socket, dict(allowed)), daemon=True).start()


def role_of(frame: zmq.Frame) -> int:
    """Role that belongs to the key of the connection a frame came over."""
    return int(frame.get("User-Id"))


def decide(question: list[bytes], allowed: Mapping[str, Role]) -> list[bytes]:
    """The answer to one question; the user id of an admitted key is its role."""
    version, request_id, _domain, _address, _identity, mechanism, *credentials = question
    role = None
    if version == _VERSION and mechanism == b"CURVE" and len(credentials) == 1:
        role = allowed.get(z85.encode(credentials[0]).decode())
    if role is None:
        return [_VERSION, request_id, b"400", b"unknown key", b"", b""]
    return [_VERSION, request_id, b"200", b"", str(int(role)).encode(), b""]


def _answer(socket: "zmq.Socket[bytes]", allowed: Mapping[str, Role]) -> None:
    try:
        while True:
            socket.send_multipart(decide(socket.recv_multipart(), allowed))
    except zmq.ContextTerminated:
        return
    except BaseException:
        # From here on nobody could connect, and nobody would know why.
        LOG.exception("the keys of peers cannot be looked at any more: this process ends")
        os.abort()
    finally:
        socket.close(linger=0)
