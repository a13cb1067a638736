"""Who may join a run from elsewhere: a token that is good once, and what the run keeps of it.

The token itself is nowhere in the run's folder, only a digest of its secret.
"""

import base64
import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path
from typing import NamedTuple

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from disttrain.job.names import Role
from disttrain.launch import atomic_file

_VERSION = "dt1"
_TOKEN = re.compile(r"dt1\.([0-9a-f]{12})\.([A-Za-z0-9_-]{43})\.([0-9a-f]{64})")
_ID_BYTES, _SECRET_BYTES = 6, 32


class Token(NamedTuple):
    """What the run's owner gives to whoever shall join."""

    invitation: str
    """Its public name: of the file in the run's folder, and of the joiner's place."""
    secret: str
    key: str
    """Fingerprint of the key of who takes joiners in: a joiner tells its secret to nobody else."""

    def __str__(self) -> str:
        return f"{_VERSION}.{self.invitation}.{self.secret}.{self.key}"

    @property
    def digest(self) -> str:
        return digest(self.secret)


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Invitation:
    """What the run keeps of a token."""

    job_uid: str
    key: str
    """As in `Token`: of the only incarnation of the run that the token is good for."""
    role: str
    digest: str
    """Of the secret."""
    expires: float
    """Seconds since 1970."""
    is_used: bool = False


_INVITATION = TypeAdapter(Invitation)


def new_token(key: str) -> Token:
    secret = base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).rstrip(b"=").decode()
    return Token(os.urandom(_ID_BYTES).hex(), secret, key)


def parse_token(text: str) -> Token:
    """Raises ValueError, whose message holds nothing of the token."""
    found = _TOKEN.fullmatch(text.strip())
    if found is None:
        message = "this is no token of `disttrain invite`; copy all of the line that it printed"
        raise ValueError(message)
    return Token(*found.groups())


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def refusal(found: Invitation | None, secret: str, *, job_uid: str, key: str, now: float) -> str:
    """Why whoever shows this secret may not join as a replica; empty if it may.

    `key`: fingerprint of the run's, as in `Token`.
    """
    if found is None or not hmac.compare_digest(found.digest, digest(secret)):
        return "the token is not one of this run; ask its owner for another one"
    if (found.job_uid, found.key) != (job_uid, key):
        # A joiner that goes by our rules has seen by itself that the key is another one.
        return "the token is for another job, or of before it was resumed; ask for another one"
    if found.role != Role.REPLICA.value:
        return f"the token is for the role {found.role}; ask for one that is for a replica"
    if found.is_used:
        return "the token was used before, and is good once; ask for another one"
    if now >= found.expires:
        return "the token has expired; ask for another one by `disttrain invite`"
    return ""


def path_of(folder: Path, invitation: str) -> Path:
    """The file of an invitation in the folder of all of them."""
    return folder / f"{invitation}.json"


def write(folder: Path, invitation: str, content: Invitation) -> None:
    """Raises OSError. After a crash of the machine no token of before is good: see `key`."""
    folder.mkdir(mode=0o700, exist_ok=True)
    atomic_file.replace(path_of(folder, invitation), _INVITATION.dump_json(content, indent=1))


def read(folder: Path, invitation: str) -> Invitation | None:
    """None: there is no such invitation, or its file is damaged."""
    try:
        return _INVITATION.validate_json(path_of(folder, invitation).read_bytes())
    except (OSError, ValidationError):
        return None
