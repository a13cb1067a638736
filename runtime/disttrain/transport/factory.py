"""Opens the transport that a configuration asks for."""

from disttrain.transport.config import TransportConfig, TransportKind
from disttrain.transport.interface import Transport
from disttrain.transport.shared_memory import SharedMemoryTransport
from disttrain.transport.tcp import TcpTransport


def open_transport(config: TransportConfig) -> Transport:
    """One per process, made after a fork."""
    if config.kind is TransportKind.TCP:
        return TcpTransport(config)
    return SharedMemoryTransport(config)
