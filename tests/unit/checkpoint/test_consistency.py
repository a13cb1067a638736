"""What a reader of a manifest refuses before it costs time or memory."""

from dataclasses import replace
from pathlib import Path

import pytest

from builders.checkpoints import a_checkpoint
from disttrain.checkpoint import manifest_text
from disttrain.checkpoint.manifest import Manifest, Slice


@pytest.fixture(name="manifest")
def _manifest(tmp_path: Path) -> Manifest:
    return a_checkpoint(tmp_path).manifest


def test_pairs_of_pieces_are_limited_over_all_tensors(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[object] = []
    monkeypatch.setattr(manifest_text, "_overlap", lambda *pair: compared.append(pair))
    pieces = tuple(piece for piece in manifest.pieces for _ in range(1000))

    finding = manifest_text.first_finding(replace(manifest, pieces=pieces))

    assert finding == "its pieces would have to be compared in 1498500 pairs; at most 1048576 are"
    assert not compared


def test_a_size_of_zero_hides_no_shape_that_nothing_can_hold(manifest: Manifest) -> None:
    (first, *others), (piece, *pieces) = manifest.tensors, manifest.pieces
    shape = (0, 2**62, 2**62)
    slices = tuple(Slice(first=0, end=size) for size in shape)
    changed = replace(
        manifest,
        tensors=(replace(first, shape=shape), *others),
        pieces=(replace(piece, slices=slices), *pieces),
    )

    assert manifest_text.first_finding(changed) == (
        f"tensor {first.name!r} has the shape {shape}, which no memory can hold"
    )
