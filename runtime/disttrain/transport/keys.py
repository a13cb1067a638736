"""New keys for encrypted connections, and those that a process finds in its keys file."""

import zmq

from disttrain.job import keys_file
from disttrain.job.keys_file import KeyPair, KeysFile
from disttrain.transport.config import CurveKeys
from disttrain.transport.errors import InvalidKeys
from disttrain.transport.header import Role


def new_pair() -> KeyPair:
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def parse(content: bytes) -> CurveKeys:
    """The keys in a file. Raises InvalidKeys, whose message holds no key."""
    try:
        file = keys_file.parse(content)
    except ValueError as error:
        raise InvalidKeys(str(error)) from None
    return of_file(file)


def of_file(file: KeysFile) -> CurveKeys:
    """The same keys as a transport takes them."""
    return CurveKeys(
        public=file.public,
        secret=file.secret,
        listeners={Role[role.name]: key for role, key in file.listeners.items()},
        allowed={key: Role[role.name] for key, role in file.allowed.items()},
    )
