"""A certificate of 127.0.0.1 that is its own authority, for servers of a test."""

import shutil
import ssl
import subprocess
from pathlib import Path

OPENSSL = shutil.which("openssl")


def certify(folder: Path) -> ssl.SSLContext:
    """What a server shows; `ca.crt` in the folder is what its clients trust, newly made."""
    assert OPENSSL is not None
    certificate, key = folder / "ca.crt", folder / "key"
    options = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=api"
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = [OPENSSL, "req", *options.split(), *names, *files]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
