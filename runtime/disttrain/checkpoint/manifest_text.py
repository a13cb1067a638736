"""A manifest as JSON, and back. What comes back is checked completely. Pure.

What passes can be restored and exported without another check: every tensor is covered exactly
once by pieces, no two pieces share elements of a vector, and holders have all of every vector.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from math import prod
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from disttrain.checkpoint import manifest_1, names
from disttrain.checkpoint.element_types import TYPES
from disttrain.checkpoint.manifest import HolderEntry, Manifest, ModelTensor, Piece
from disttrain.checkpoint.manifest_1 import Manifest1
from disttrain.state.placement import Range, covered
from disttrain.state.vector import PARAMETERS, Vector

LIMIT_BYTES = 64 * 1024 * 1024
"""No manifest is longer; 64 MiB describe about 200,000 tensors."""

MOST_PIECES = 1024
"""Of one tensor."""
MOST_PAIRS = 1 << 20
"""Of pieces of the same tensor, over all tensors: overlaps are looked for in pairs, about 1 s."""
MOST_ELEMENTS = 2**63 - 1
"""Also of a shape in which a size of 0 hides the others."""

_MANIFEST = TypeAdapter(Manifest)
_ANY: TypeAdapter[Manifest | Manifest1] = TypeAdapter(
    Annotated[Manifest | Manifest1, Field(discriminator="format_version")]
)


class MalformedManifest(ValueError):
    """A text is no manifest of a checkpoint; says the first thing that is wrong."""


def encode(manifest: Manifest) -> bytes:
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
    finding = first_finding(manifest)
    if finding is not None:
        raise MalformedManifest(finding)
    return manifest


def _first(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return type(error).__name__
    return first_mistake(error) if isinstance(error, ValidationError) else str(error)


def first_mistake(error: ValidationError) -> str:
    """Where it is, what is wrong, and the beginning of what stands there."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"])) or "the text"
    return f"{place}: {first['msg']}, got {str(first['input'])[:100]!r}"


def first_finding(manifest: Manifest) -> str | None:
    return next(_findings(manifest), None)


def _findings(manifest: Manifest) -> Iterator[str]:
    yield from _wrong_files(manifest)
    yield from _wrong_names(manifest)
    yield from _wrong_pieces(manifest)
    yield from _wrong_ranges(manifest)


def _wrong_files(manifest: Manifest) -> Iterator[str]:
    if len(manifest.holders) != len(manifest.placement.holders):
        told = len(manifest.placement.holders)
        yield f"holders: there are {len(manifest.holders)}, the placement has {told}"
    for place, holder in enumerate(manifest.holders):
        if holder.index != place:
            yield f"holders.{place}: its index is {holder.index}, not {place}"
        if holder.file.name not in {names.part_file(place), names.former_part_file(place)}:
            name = names.part_file(place)
            yield f"holders.{place}: its file is {holder.file.name!r}, not {name}"
        yield from _wrong_vectors(holder)
    own = manifest.coordinator
    if own is not None and own.name != names.COORDINATOR:
        yield f"coordinator: its file is {own.name!r}, not {names.COORDINATOR}"


def _wrong_vectors(holder: HolderEntry) -> Iterator[str]:
    seen: set[Vector] = set()
    for own in holder.vectors:
        place = f"holders.{holder.index}: the file of {own.vector}"
        wanted = names.vector_file(own.file.hash)
        if own.file.name != wanted:
            yield f"{place} is {own.file.name!r}, not {wanted}"
        if own.vector.is_of_a_model:
            yield f"{place} is there, but it is no optimizer's state"
        if own.vector in seen:
            yield f"{place} is there twice"
        seen.add(own.vector)


def _wrong_names(manifest: Manifest) -> Iterator[str]:
    seen: set[str] = set()
    for tensor in manifest.tensors:
        for name in (tensor.name, *tensor.aliases):
            if name in seen:
                yield f"tensor {name!r} occurs twice"
            seen.add(name)


def _wrong_pieces(manifest: Manifest) -> Iterator[str]:
    pieces = defaultdict(list)
    for piece in manifest.pieces:
        pieces[piece.tensor].append(piece)
    pairs = sum(len(found) * (len(found) - 1) // 2 for found in pieces.values())
    if pairs > MOST_PAIRS:
        yield f"its pieces would have to be compared in {pairs} pairs; at most {MOST_PAIRS} are"
    for tensor in manifest.tensors:
        yield from _wrong_tensor(tensor, pieces.pop(tensor.name, []))
    for name in pieces:
        yield f"there is a piece of tensor {name!r}, which the model does not have"


def _wrong_tensor(tensor: ModelTensor, pieces: list[Piece]) -> Iterator[str]:
    yield from _wrong_type(tensor, pieces)
    if prod(size for size in tensor.shape if size) > MOST_ELEMENTS:
        yield f"tensor {tensor.name!r} has the shape {tensor.shape}, which no memory can hold"
    if not all(_lies_inside(piece, tensor) for piece in pieces):
        yield f"a piece of tensor {tensor.name!r} lies outside its shape {tensor.shape}"
    held = sum(piece.elements for piece in pieces)
    if not pieces or held != tensor.elements:
        yield f"tensor {tensor.name!r} has {tensor.elements} elements, its pieces have {held}"
    if len(pieces) > MOST_PIECES:
        yield f"tensor {tensor.name!r} has {len(pieces)} pieces; at most {MOST_PIECES} are read"
    if any(_overlap(one, other) for one, other in combinations(pieces, 2)):
        yield f"pieces of tensor {tensor.name!r} overlap"


def _wrong_type(tensor: ModelTensor, pieces: list[Piece]) -> Iterator[str]:
    kind = TYPES.get(tensor.dtype)
    if kind is None:
        yield f"tensor {tensor.name!r} has the unknown type {tensor.dtype!r}"
    elif not all(piece.vector.element_type in kind.held_as for piece in pieces):
        yield f"tensor {tensor.name!r} of type {tensor.dtype} lies in a vector of another type"
    if len({piece.vector._replace(partition=0) for piece in pieces}) > 1:
        yield f"tensor {tensor.name!r} lies in two vectors"


def _lies_inside(piece: Piece, tensor: ModelTensor) -> bool:
    if len(piece.slices) != len(tensor.shape):
        return False
    sizes = zip(piece.slices, tensor.shape, strict=True)
    return all(part.first <= part.end <= size for part, size in sizes)


def _overlap(one: Piece, other: Piece) -> bool:
    return all(
        a.first < b.end and b.first < a.end for a, b in zip(one.slices, other.slices, strict=True)
    )


def _wrong_ranges(manifest: Manifest) -> Iterator[str]:
    places: dict[Vector, list[Range]] = defaultdict(list)
    for piece in manifest.pieces:
        places[piece.vector].append(Range(first=piece.first, end=piece.first + piece.elements))
    placement = manifest.placement
    for vector, found in places.items():
        if not vector.is_of_a_model or covered(found) != placement.elements(vector):
            yield f"{vector} is not covered exactly once by the tensors that lie in it"
    for vector in placement.vectors:
        wanted = vector if vector.is_of_a_model else vector.beside(PARAMETERS)
        if placement.elements(vector) != (covered(places.get(wanted, [])) or 0):
            yield f"holders have another length of {vector} than the tensors that lie in it"
