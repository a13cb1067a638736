"""How the coordinator reaches the API server of the cluster that it runs in."""

from dataclasses import dataclass
from pathlib import Path

ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes puts what belongs to a pod's service account."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterAccess:
    """Its address, and who the process is there. The files change while it runs."""

    server: str
    """https://HOST:PORT."""
    account_folder: Path = ACCOUNT_FOLDER

    @property
    def token(self) -> Path:
        return self.account_folder / "token"

    @property
    def authority(self) -> Path:
        return self.account_folder / "ca.crt"
