"""Where the API server is and who we are: from the pod we run in, or from a kubeconfig."""

import base64
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from disttrain.job import certificate_chain
from disttrain_operator.errors import InvalidSettings

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


@dataclass(frozen=True, slots=True)
class Credentials:
    """All that a connection needs."""

    server: str
    authority: bytes | None
    """The API server's authority as PEM; None: those that the system trusts."""
    certificate: bytes | None = None
    """Our certificate and its key as PEM, one after the other."""
    token: str | None = None
    token_file: Path | None = None
    """Read again for each minute: the kubelet replaces it."""

    def ssl_context(self) -> ssl.SSLContext:
        authority = self.authority.decode() if self.authority else None
        context = ssl.create_default_context(cadata=authority)
        if self.certificate is not None:
            certificate_chain.load(context, self.certificate.decode(), "")
        return context

    def own_address(self) -> str:
        """The address of this machine from which the API server is reached. Raises OSError."""
        place = urlsplit(self.server)
        found = socket.getaddrinfo(place.hostname, place.port or 443, type=socket.SOCK_DGRAM)
        family, kind, _, _, address = found[0]
        with socket.socket(family, kind) as probe:
            # Nothing is sent: the kernel only looks for the way.
            probe.connect(address)
            return str(probe.getsockname()[0])

    def read_token(self) -> str | None:
        return self.token_file.read_text().strip() if self.token_file else self.token


def find() -> Credentials:
    """Our credentials. Raises InvalidSettings where there are none."""
    if _HOST in os.environ and "KUBECONFIG" not in os.environ:
        return _of_pod()
    return of_kubeconfig(Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config"))


def of_kubeconfig(path: Path) -> Credentials:
    """The credentials in a file. Raises InvalidSettings where it holds none."""
    try:
        return _of_kubeconfig(yaml.safe_load(path.read_text()), path.parent)
    except (OSError, yaml.YAMLError, KeyError, TypeError, StopIteration, ValueError) as error:
        message = (
            f"neither in a pod nor with a good kubeconfig at {path} "
            f"({type(error).__name__}: {error}); set KUBECONFIG"
        )
        raise InvalidSettings(message) from error


def _of_pod() -> Credentials:
    host = os.environ[_HOST]
    bracketed = f"[{host}]" if ":" in host else host
    return Credentials(
        server=f"https://{bracketed}:{os.environ.get(_PORT, '443')}",
        authority=(_ACCOUNT / "ca.crt").read_bytes(),
        token_file=_ACCOUNT / "token",
    )


def _of_kubeconfig(config: dict[str, Any], folder: Path) -> Credentials:
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    certificate = _content(user, "client-certificate", folder)
    key = _content(user, "client-key", folder)
    return Credentials(
        server=cluster["server"].rstrip("/"),
        authority=_content(cluster, "certificate-authority", folder),
        certificate=certificate + b"\n" + key if certificate and key else None,
        token=user.get("token"),
        token_file=folder / user["tokenFile"] if "tokenFile" in user else None,
    )


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _content(section: dict[str, Any], name: str, folder: Path) -> bytes | None:
    if f"{name}-data" in section:
        return base64.b64decode(section[f"{name}-data"])
    return (folder / section[name]).read_bytes() if name in section else None
