"""Gives OpenSSL a certificate and its key, without a file on any disk."""

import os
import ssl


def load(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Both in PEM. Raises ssl.SSLError, ValueError.

    OpenSSL's function takes the name of a file: this one is in memory alone.
    """
    descriptor = os.memfd_create("disttrain-credentials", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(f"{certificate}\n{key}\n".encode())
        file.flush()
        # Without a password of ours OpenSSL would ask at the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
