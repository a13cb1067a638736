"""What the manifest says of how gradients and parameters travel."""

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from disttrain.job.section import Section, refused


class TransportChoice(StrEnum):
    """By what gradients and parameters travel."""

    AUTO = "auto"
    """Shared memory between processes of one machine, else TCP."""
    TCP = "tcp"
    """TCP, on one machine too."""
    SHARED_MEMORY = "sharedMemory"
    """Shared memory; all processes must be on one machine."""


class Encryption(StrEnum):
    """What protects TCP connections between the processes of a job."""

    TLS = "tls"
    """TLS 1.3, with certificates on both sides."""
    NONE = "none"
    """Nothing: whoever reaches a port of the job is heard. For networks that encrypt by themselves,
    for tests and for benchmarks."""


class Transport(Section):
    """How gradients and parameters travel."""

    short_form = "kind"

    kind: Annotated[TransportChoice, Field(strict=False)] = TransportChoice.AUTO
    """By what gradients and parameters travel."""

    encryption: Annotated[Encryption, Field(strict=False)] = Encryption.TLS
    """What protects TCP connections between the processes of a job. Shared memory needs nothing:
    its sockets lie in a folder of one user."""

    @property
    def is_encrypted(self) -> bool:
        """Over TCP."""
        return self.encryption is not Encryption.NONE


def _written_out(value: object) -> object:
    """A text stands for its kind: manifests of before `encryption` have no other form."""
    if not isinstance(value, str):
        return value
    if value not in set(TransportChoice):
        kinds = ", ".join(f"'{kind}'" for kind in TransportChoice)
        raise refused(f"must be a mapping or one of {kinds}, got '{value}' (text)")
    return {Transport.short_form: value}


TransportField = Annotated[
    Transport,
    BeforeValidator(_written_out, json_schema_input_type=Transport | TransportChoice),
]
"""`transport: tcp` is short for `transport: {kind: tcp}`."""
