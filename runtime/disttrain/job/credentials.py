"""What a process of a job proves with who it is, and the file in which it finds that. Pure."""

import json
from dataclasses import field

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Credentials:
    """In PEM. Needed wherever strangers can connect."""

    certificate: str
    """Names the job and the role; see `identity`."""
    key: str = field(repr=False)
    authority: str
    """The certificate of the job's authority, which has signed those of all its processes."""


_FILE = TypeAdapter(Credentials)


def encode(credentials: Credentials) -> bytes:
    """The content of a file; `parse` gives the same value back."""
    return json.dumps(_FILE.dump_python(credentials), indent=1).encode()


def parse(content: bytes) -> Credentials:
    """The credentials in a file. Raises ValueError, whose message holds no key."""
    try:
        return _FILE.validate_json(content)
    except ValidationError as error:
        found = (str(item["loc"][0]) for item in error.errors() if item["loc"])
        places = ", ".join(dict.fromkeys(found)) or "its beginning"
        message = f"the credentials file is not valid at: {places}"
        raise ValueError(message) from None
