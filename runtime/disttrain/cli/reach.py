"""Addresses as people type them: HOST:PORT."""

from disttrain.launch.errors import NotJoinable

_MOST = 1 << 16


def parse(field: str, text: str) -> tuple[str, int]:
    """Host and port. Raises NotJoinable, which names the field."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < _MOST:
        message = f"{field}: must be HOST:PORT with a port from 1 to 65535, got '{text}'"
        raise NotJoinable(message)
    return host.strip("[]"), int(port)
