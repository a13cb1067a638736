"""The cluster's own certificate authority, keys and certificates, made by openssl.

They live as long as the cluster and are worth nothing outside it.
"""

from dataclasses import dataclass
from pathlib import Path

from cluster import commands, layout

DAYS = "30"
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
SERVER_NAMES = (
    "DNS:kubernetes",
    "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc",
    "DNS:kubernetes.default.svc.cluster.local",
    "DNS:localhost",
    "IP:127.0.0.1",
    f"IP:{layout.API_SERVICE}",
    f"IP:{layout.FIRST_NODE}",
    f"IP:{layout.LINK_ADDRESS}",
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, as files."""

    name: str

    @property
    def certificate(self) -> Path:
        """PEM file of the certificate."""
        return layout.certificates() / f"{self.name}.crt"

    @property
    def key(self) -> Path:
        """PEM file of the private key."""
        return layout.certificates() / f"{self.name}.key"


AUTHORITY = Pair("authority")
API_SERVER = Pair("kube-apiserver")
SERVICE_ACCOUNTS = Pair("service-accounts")
"""Tokens are signed with its key and checked by its certificate."""


def make_authority() -> None:
    """Make the CA, the API server's certificate and the key for tokens."""
    layout.certificates().mkdir(parents=True, exist_ok=True)
    _make(AUTHORITY, "/CN=disttrain-test-cluster", "basicConstraints=critical,CA:TRUE")
    names = ",".join(SERVER_NAMES)
    _make_signed(API_SERVER, "/CN=kube-apiserver", "serverAuth", f"subjectAltName={names}")
    _make(SERVICE_ACCOUNTS, "/CN=service-accounts", "keyUsage=digitalSignature")


def make_client(user: str, group: str) -> Pair:
    """Make the certificate by which the API server knows a user of a group."""
    pair = Pair(f"client-{user.replace(':', '-')}")
    _make_signed(pair, f"/O={group}/CN={user}", "clientAuth")
    return pair


def _make_signed(pair: Pair, subject: str, usage: str, *extensions: str) -> None:
    signer = ("-CA", str(AUTHORITY.certificate), "-CAkey", str(AUTHORITY.key))
    usages = ("basicConstraints=CA:FALSE", f"extendedKeyUsage={usage}", *extensions)
    _make(pair, subject, *usages, signer=signer)


def _make(pair: Pair, subject: str, *extensions: str, signer: tuple[str, ...] = ()) -> None:
    wanted = [part for extension in extensions for part in ("-addext", extension)]
    files = ("-keyout", pair.key, "-out", pair.certificate)
    # An own configuration: the machine's adds extensions of its own, which then stand twice.
    config = layout.certificates() / "openssl.cnf"
    config.write_text("[req]\ndistinguished_name = subject\n[subject]\n")
    head = ("openssl", "req", "-config", config, "-x509", "-days", DAYS, "-subj", subject)
    commands.run(*head, *NEW_KEY, *files, *signer, *wanted)
