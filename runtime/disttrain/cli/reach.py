"""Addresses as people type them: HOST:PORT."""

import ipaddress
from contextlib import suppress

from disttrain.launch.errors import NotJoinable

_MOST = 1 << 16


def parse_own(field: str, text: str) -> tuple[str, int]:
    """As `parse`, of this machine, as others are told it. Raises NotJoinable."""
    host, port = parse(field, text)
    with suppress(ValueError):
        if ipaddress.ip_address(host).is_unspecified:
            message = (
                f"{field}: nobody can connect to {host}; name one address of this machine, by "
                "which joiners reach it"
            )
            raise NotJoinable(message)
    return host, port


def parse(field: str, text: str) -> tuple[str, int]:
    """Host and port. Raises NotJoinable, which names the field."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < _MOST:
        message = f"{field}: must be HOST:PORT with a port from 1 to 65535, got '{text}'"
        raise NotJoinable(message)
    return host.strip("[]"), int(port)
