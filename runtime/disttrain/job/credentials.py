"""What a process of a job proves with who it is, and the files in which it finds that. Pure."""

import json
from dataclasses import field

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Credentials:
    """In PEM. Needed wherever strangers can connect."""

    certificate: str
    """Names the job and the process; see `identity`."""
    key: str = field(repr=False)
    authority: str
    """The certificate of the job's authority, which has signed those of all its processes."""

    @property
    def current(self) -> "Credentials":
        return self


class RenewedCredentials:
    """The credentials of a process as they are now: another thread renews them."""

    def __init__(self, first: Credentials) -> None:
        self.current = first
        """Connections that are made from now on show these."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Trust:
    """Of whom a pod asks for its credentials, and what they are checked with. Holds no key.

    Processes of older versions refuse the file, for it has none of the fields that they expect.
    """

    authority: str
    """As in `Credentials`."""
    signer: str
    """HOST:PORT of who signs: the operator."""
    signer_authority: str
    """The certificate of the authority of the signer's own certificate."""


_CREDENTIALS = TypeAdapter(Credentials)
_TRUST = TypeAdapter(Trust)


def encode(content: Credentials | Trust) -> bytes:
    """The content of a file; `parse` gives the same value back."""
    adapter = _TRUST if isinstance(content, Trust) else _CREDENTIALS
    return json.dumps(adapter.dump_python(content), indent=1).encode()  # type: ignore[arg-type]


def parse(content: bytes) -> Credentials | Trust:
    """What a file holds. Raises ValueError, whose message holds no key."""
    adapter = _TRUST if b'"signer"' in content else _CREDENTIALS
    try:
        return adapter.validate_json(content)
    except ValidationError as error:
        found = (str(item["loc"][0]) for item in error.errors() if item["loc"])
        places = ", ".join(dict.fromkeys(found)) or "its beginning"
        message = f"the credentials file is not valid at: {places}"
        raise ValueError(message) from None
