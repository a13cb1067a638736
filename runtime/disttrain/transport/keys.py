"""Keys for encrypted connections: making them, and the JSON file that a process reads its own from.

{"public": KEY, "secret": KEY, "listeners": {ROLE: KEY}, "allowed": {KEY: ROLE}}; keys are in the
Z85 text form of ZeroMQ, roles are lower-case names.
"""

import json
from typing import NamedTuple

import zmq
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from disttrain.transport.config import CurveKeys
from disttrain.transport.errors import InvalidKeys
from disttrain.transport.header import Role

KEY_CHARACTERS = 40


class KeyPair(NamedTuple):
    """A public key and its secret."""

    public: str
    secret: str


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid", strict=True))
class _File:
    public: str
    secret: str
    listeners: dict[str, str]
    allowed: dict[str, str]


_FILE = TypeAdapter(_File)


def new_pair() -> KeyPair:
    """A random pair."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def encode(keys: CurveKeys) -> bytes:
    """The content of a keys file; `parse` gives the same value back."""
    content = {
        "public": keys.public,
        "secret": keys.secret,
        "listeners": {role.name.lower(): key for role, key in keys.listeners.items()},
        "allowed": {key: role.name.lower() for key, role in keys.allowed.items()},
    }
    return json.dumps(content, indent=1).encode()


def parse(content: bytes) -> CurveKeys:
    """The keys in a file. Raises InvalidKeys, whose message holds no key."""
    try:
        file = _FILE.validate_json(content)
    except ValidationError as error:
        places = ", ".join(".".join(map(str, found["loc"])) for found in error.errors())
        message = f"the keys file is not valid at: {places or 'its beginning'}"
        raise InvalidKeys(message) from None
    return CurveKeys(
        public=_key(file.public, "public"),
        secret=_key(file.secret, "secret"),
        listeners={_role(name): _key(key, name) for name, key in file.listeners.items()},
        allowed={_key(key, name): _role(name) for key, name in file.allowed.items()},
    )


def _key(text: str, place: str) -> str:
    if len(text) != KEY_CHARACTERS:
        message = f"keys have {KEY_CHARACTERS} characters, that of {place} has {len(text)}"
        raise InvalidKeys(message)
    return text


def _role(name: str) -> Role:
    found = {role.name.lower(): role for role in Role}.get(name)
    if found is None:
        message = f"no role is called {name!r} in the keys file"
        raise InvalidKeys(message)
    return found
