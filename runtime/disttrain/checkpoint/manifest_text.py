"""A manifest as JSON, and back. What comes back is checked completely. Pure."""

from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from disttrain.checkpoint import consistency, manifest_1
from disttrain.checkpoint.manifest import Manifest
from disttrain.checkpoint.manifest_1 import Manifest1

LIMIT_BYTES = 64 * 1024 * 1024
"""No manifest is longer; 64 MiB describe about 200,000 tensors."""

_MANIFEST = TypeAdapter(Manifest)
_ANY: TypeAdapter[Manifest | Manifest1] = TypeAdapter(
    Annotated[Manifest | Manifest1, Field(discriminator="format_version")]
)


class MalformedManifest(ValueError):
    """A text is no manifest of a checkpoint; says the first thing that is wrong."""


def encode(manifest: Manifest) -> bytes:
    """The file's content; `parse` gives an equal manifest back."""
    return _MANIFEST.dump_json(manifest, indent=1)


def parse(content: bytes) -> Manifest:
    """The manifest in this text, of whichever format. Raises MalformedManifest."""
    if len(content) > LIMIT_BYTES:
        message = f"it has {len(content)} bytes; a manifest has at most {LIMIT_BYTES}"
        raise MalformedManifest(message)
    try:
        found = _ANY.validate_json(content, strict=True)
        manifest = manifest_1.upgraded(found) if isinstance(found, Manifest1) else found
    except (ValueError, RecursionError) as error:
        raise MalformedManifest(_first(error)) from error
    finding = consistency.first_finding(manifest)
    if finding is not None:
        raise MalformedManifest(finding)
    return manifest


def _first(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return type(error).__name__
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"])) or "the text"
    return f"{place}: {first['msg']}, got {str(first['input'])[:100]!r}"
