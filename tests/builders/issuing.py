"""Credentials of a job's processes."""

from collections.abc import Iterable

from disttrain.job import certificates
from disttrain.job.credentials import Credentials
from disttrain.job.identity import Identity
from disttrain.job.names import Role


def by_role(job_uid: str, roles: Iterable[str] = tuple(Role)) -> dict[str, Credentials]:
    """One for each role, of a new authority, as older versions made them."""
    authority = certificates.new_authority()
    return {str(role): authority.issue(Identity(job_uid, str(role))) for role in roles}
