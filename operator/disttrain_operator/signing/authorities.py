"""An authority for each job, derived from the operator's master secret and stored nowhere. Pure."""

from datetime import timedelta

from disttrain.job import certificates
from disttrain.job.certificates import LIFETIME_OF_A_JOB
from disttrain.job.credentials import Credentials, Trust
from disttrain.job.identity import Identity

_ENDPOINT = "endpoint"
_JOB = "job/"
"""Purposes of keys. No uid of a job makes one the other."""


class Authorities:
    """All that is signed by the operator."""

    def __init__(self, master: bytes, lifetime: timedelta) -> None:
        """`lifetime`: of certificates of processes."""
        self._master = master
        self._lifetime = lifetime
        self._endpoint = certificates.derived_authority(master, _ENDPOINT)

    def trust(self, job_uid: str, address: str) -> Trust:
        """What the pods of a job are told; `address`: HOST:PORT where they ask."""
        authority = certificates.derived_authority(self._master, f"{_JOB}{job_uid}")
        return Trust(
            authority=authority.certificate,
            signer=address,
            signer_authority=self._endpoint.certificate,
        )

    def sign(self, request: str, identity: Identity) -> str:
        """The certificate of a process. Raises ValueError for what is no good request."""
        authority = certificates.derived_authority(self._master, f"{_JOB}{identity.job_uid}")
        return authority.sign(request, identity, self._lifetime)

    def of_endpoint(self, host: str) -> Credentials:
        """What the port at which pods ask shows; made anew by each process of the operator."""
        return self._endpoint.issue_server(host, LIFETIME_OF_A_JOB)
