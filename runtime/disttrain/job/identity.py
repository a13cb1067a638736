"""Who a certificate says its holder is: a URI among its alternative names. Pure.

disttrain://JOB_UID/ROLE. A job's authority signs for no other job.
"""

from collections.abc import Mapping
from typing import NamedTuple

_SCHEME = "disttrain://"


class Identity(NamedTuple):
    """A process of a job."""

    job_uid: str
    role: str
    """coordinator, shard, replica, or launcher."""

    @property
    def uri(self) -> str:
        return f"{_SCHEME}{self.job_uid}/{self.role}"


def of_certificate(certificate: Mapping[str, object]) -> Identity | None:
    """What `ssl.SSLSocket.getpeercert` tells; None if it names no process of a job."""
    names = certificate.get("subjectAltName")
    for name in names if isinstance(names, tuple) else ():
        if name[0] == "URI" and (found := parse(name[1])) is not None:
            return found
    return None


def parse(uri: str) -> Identity | None:
    job_uid, _, role = uri.removeprefix(_SCHEME).partition("/")
    if not uri.startswith(_SCHEME) or not job_uid or not role:
        return None
    return Identity(job_uid, role)
