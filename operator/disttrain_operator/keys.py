"""New keys. The only module that imports zmq: its keys are those that the processes use."""

import zmq

from disttrain.job.keys_file import KeyPair
from disttrain.job.names import Role


def new_pairs() -> dict[Role, KeyPair]:
    return {role: _pair() for role in Role}


def _pair() -> KeyPair:
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())
