"""The keys file of a process, and which role may know which keys. Pure.

{"public": KEY, "secret": KEY, "listeners": {ROLE: KEY}, "allowed": {KEY: ROLE}}: its own pair, the
keys that the listeners it connects to show, and the keys of those that may connect to it. Keys are
in the Z85 text form of ZeroMQ. Whoever starts a job makes a pair per role and gives each process
the file of its role alone.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from pydantic_core import ErrorDetails

from disttrain.job import pod_layout
from disttrain.job.names import Role

KEY_CHARACTERS = 40

CONNECTS_TO: Mapping[Role, tuple[Role, ...]] = {
    Role.COORDINATOR: (),
    Role.SHARD: (Role.COORDINATOR,),
    Role.REPLICA: (Role.COORDINATOR, Role.SHARD),
}
"""Whose listeners a role connects to."""


class KeyPair(NamedTuple):
    """A public key and its secret."""

    public: str
    secret: str


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class KeysFile:
    """What a process knows of its job's keys."""

    public: str
    secret: str
    listeners: dict[Role, str]
    allowed: dict[str, Role]


_FILE = TypeAdapter(KeysFile)


def files(pairs: Mapping[Role, KeyPair]) -> dict[str, bytes]:
    """The contents of a job's keys files by their names, as they lie in its Secret."""
    return {pod_layout.keys_key(role): encode(of_role(role, pairs)) for role in pairs}


def of_role(role: Role, pairs: Mapping[Role, KeyPair]) -> KeysFile:
    connecting = [other for other in pairs if role in CONNECTS_TO[other]]
    return KeysFile(
        public=pairs[role].public,
        secret=pairs[role].secret,
        listeners={listener: pairs[listener].public for listener in CONNECTS_TO[role]},
        allowed={pairs[other].public: other for other in connecting},
    )


def encode(file: KeysFile) -> bytes:
    """The content of a file; `parse` gives the same value back."""
    return json.dumps(_FILE.dump_python(file, mode="json"), indent=1).encode()


def parse(content: bytes) -> KeysFile:
    """The keys in a file. Raises ValueError, whose message holds no key."""
    try:
        file = _FILE.validate_json(content)
    except ValidationError as error:
        # Below the first part a place can be a key itself: those that may connect are listed so.
        places = ", ".join(dict.fromkeys(str(found["loc"][0]) for found in _placed(error)))
        message = f"the keys file is not valid at: {places or 'its beginning'}"
        raise ValueError(message) from None
    for place, key in _keys(file):
        if len(key) != KEY_CHARACTERS:
            message = f"keys have {KEY_CHARACTERS} characters, that of {place} has {len(key)}"
            raise ValueError(message)
    return file


def _placed(error: ValidationError) -> list[ErrorDetails]:
    return [found for found in error.errors() if found["loc"]]


def _keys(file: KeysFile) -> list[tuple[str, str]]:
    listeners = [(role.value, key) for role, key in file.listeners.items()]
    allowed = [(role.value, key) for key, role in file.allowed.items()]
    return [("public", file.public), ("secret", file.secret), *listeners, *allowed]
