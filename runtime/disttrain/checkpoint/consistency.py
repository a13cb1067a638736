"""Whether the parts of a manifest fit together. Pure.

What passes can be restored and exported without another check: every tensor is covered exactly
once by pieces, no two pieces share elements of a vector, and shards cover every vector exactly.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations
from math import prod

from disttrain.checkpoint import names
from disttrain.checkpoint.element_types import TYPES
from disttrain.checkpoint.manifest import Manifest, ModelTensor, Piece, ShardEntry

MOST_PIECES = 1024
"""Of one tensor."""
MOST_PAIRS = 1 << 20
"""Of pieces of the same tensor, over all tensors: overlaps are looked for in pairs, about 1 s."""
MOST_ELEMENTS = 2**63 - 1
"""Also of a shape in which a size of 0 hides the others."""


def first_finding(manifest: Manifest) -> str | None:
    """The first thing that is wrong, as a sentence; None if all fits."""
    return next(_findings(manifest), None)


def _findings(manifest: Manifest) -> Iterator[str]:
    yield from _wrong_files(manifest)
    yield from _wrong_names(manifest)
    yield from _wrong_pieces(manifest)
    yield from _wrong_ranges(manifest)


def _wrong_files(manifest: Manifest) -> Iterator[str]:
    for place, shard in enumerate(manifest.shards):
        if shard.index != place:
            yield f"shards.{place}: its index is {shard.index}, not {place}"
        if shard.file.name != names.shard_file(place):
            yield f"shards.{place}: its file is {shard.file.name!r}, not {names.shard_file(place)}"
        yield from _wrong_vectors(shard)
        vectors = [part.vector for part in shard.ranges]
        if len(set(vectors)) < len(vectors):
            yield f"shards.{place}: it holds two ranges of a vector, but its file has place for one"
    own = manifest.coordinator
    if own is not None and own.name != names.COORDINATOR:
        yield f"coordinator: its file is {own.name!r}, not {names.COORDINATOR}"


def _wrong_vectors(shard: ShardEntry) -> Iterator[str]:
    seen: set[str] = set()
    for vector in shard.vectors:
        place = f"shards.{shard.index}: the file of {vector.tensor!r}"
        wanted = names.vector_file(vector.file.hash)
        if vector.file.name != wanted:
            yield f"{place} is {vector.file.name!r}, not {wanted}"
        if names.kind(vector.tensor) is not names.Kind.STATE:
            yield f"{place} is there, but it is no optimizer's state"
        if vector.tensor in seen:
            yield f"{place} is there twice"
        seen.add(vector.tensor)


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
    elif not all(piece.vector in kind.vectors for piece in pieces):
        yield f"tensor {tensor.name!r} of type {tensor.dtype} lies in a vector of another type"
    if len({piece.vector for piece in pieces}) > 1:
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
    lengths: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for piece in manifest.pieces:
        key = (piece.partition, piece.vector.name)
        lengths[key].append((piece.first, piece.first + piece.elements))
    held = _held(manifest.shards)
    for key, places in lengths.items():
        wanted, found = _covered(places), _covered(held.pop(key, []))
        if wanted is None or found != wanted:
            yield f"vector {key[1]} of partition {key[0]} is not covered exactly once by the shards"
    if any(_covered(places) != 0 for places in held.values()):
        yield "shards hold a vector that no tensor lies in"


def _held(shards: Iterable[ShardEntry]) -> dict[tuple[int, str], list[tuple[int, int]]]:
    held: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for shard in shards:
        for part in shard.ranges:
            held[part.partition, part.vector.name].append((part.first, part.end))
    return held


def _covered(places: list[tuple[int, int]]) -> int | None:
    """The length that places cover without gap or overlap; None if they do not."""
    end = 0
    for first, last in sorted(places):
        if first != end or last < first:
            return None
        end = last
    return end
