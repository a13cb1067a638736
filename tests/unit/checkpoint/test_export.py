"""Exports, loaded with what plain PyTorch offers."""

import hashlib
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors import safe_open
from torch import nn

from builders import placements
from builders.checkpoints import (
    a_checkpoint,
    a_divided_checkpoint,
    a_layout,
    a_tensor,
    commit_cuts,
    flip_bit,
)
from disttrain.checkpoint import export, names
from disttrain.checkpoint.errors import Corrupt, NotWritten, NoVector
from disttrain.checkpoint.manifest import ModelTensor, Piece, Slice
from disttrain.holder import writing
from disttrain.holder.values import Values
from disttrain.parameter_server.holder_side import ShardState
from disttrain.replica import model_tensors
from disttrain.state.layout import ModelLayout
from disttrain.state.share import Share


class Model(nn.Module):
    """Tied, frozen and scalar tensors, and buffers of all types."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 10)
        self.out.weight = self.embed.weight
        self.norm = nn.BatchNorm1d(4)
        self.temperature = nn.Parameter(torch.ones(()))
        self.frozen = nn.Parameter(torch.ones(3, dtype=torch.float16), requires_grad=False)
        self.brain = nn.Parameter(torch.ones(3, dtype=torch.bfloat16), requires_grad=False)
        for kind in ("int8", "int16", "int32", "uint8", "bool", "float64", "bfloat16"):
            self.register_buffer(f"of_{kind}", torch.zeros(2, dtype=getattr(torch, kind)))
        self.register_buffer("empty", torch.zeros(0, 3))


@pytest.mark.parametrize("shards", [1, 3])
def test_every_kind_of_tensor_comes_back_with_its_name_and_type(
    tmp_path: Path, shards: int
) -> None:
    torch.manual_seed(0)
    layout = model_tensors.describe(Model()).layout
    checkpoint = a_checkpoint(tmp_path / "store", layout=layout, shards=shards)

    export.export(checkpoint.path, tmp_path / "model.safetensors")

    state = safetensors.torch.load_file(tmp_path / "model.safetensors")
    model = Model()
    assert {name: t.dtype for name, t in state.items()} == {
        name: t.dtype for name, t in model.state_dict().items()
    }
    model.load_state_dict(state, strict=True)
    for spec in layout.tensors:
        values = torch.arange(spec.first, spec.first + spec.elements).reshape(spec.shape)
        for name in (spec.name, *spec.aliases):
            assert torch.equal(state[name], values.to(state[name].dtype)), name
    assert model.out.weight is model.embed.weight


def test_the_hash_in_the_metadata_is_that_of_the_data(tmp_path: Path) -> None:
    out = tmp_path / "model.safetensors"
    written = export.export(a_checkpoint(tmp_path / "store").path, out)
    content = out.read_bytes()
    data = content[8 + int.from_bytes(content[:8], "little") :]
    with safe_open(out, "np") as found:
        metadata = found.metadata()
    assert metadata[export.HASH_KEY] == hashlib.sha256(data).hexdigest() == written.sha256
    assert metadata["format"] == "pt"
    assert metadata["disttrain.samples"] == "4096"
    assert written.bytes == len(content)


def test_two_exports_are_the_same_bytes(tmp_path: Path) -> None:
    one = a_checkpoint(tmp_path / "store", shards=1)
    other = a_checkpoint(tmp_path / "store2", shards=4)
    export.export(one.path, tmp_path / "one")
    export.export(other.path, tmp_path / "other")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_a_damaged_checkpoint_is_not_exported(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path / "store")
    flip_bit(checkpoint.path / names.part_file(1), -1)
    with pytest.raises(Corrupt, match="part-00001"):
        export.export(checkpoint.path, tmp_path / "model.safetensors")
    assert not (tmp_path / "model.safetensors").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path / "store")
    with pytest.raises(NotWritten, match=r"none/model"):
        export.export(checkpoint.path, tmp_path / "none" / "model")


def test_a_whole_number_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    tensor = a_tensor("of_int8", (200,), dtype="int8", vector=placements.BUFFERS_INT64)
    checkpoint = a_checkpoint(tmp_path / "store", layout=ModelLayout(tensors=(tensor,)))
    with pytest.raises(Corrupt, match="'of_int8': 0 to 199 do not fit into int8"):
        export.export(checkpoint.path, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    layout = a_layout({"big": (4096, 4096)})
    checkpoint = a_checkpoint(tmp_path / "store", layout=layout)
    tracemalloc.start()
    try:
        export.export(checkpoint.path, tmp_path / "model")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 24 * 1024 * 1024
    assert (tmp_path / "model").stat().st_size > 64 * 1024 * 1024


def test_a_model_divided_over_partitions_is_put_together(tmp_path: Path) -> None:
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    left, right = Slice(first=0, end=4), Slice(first=4, end=6)
    rows = Slice(first=0, end=4)
    tensor = ModelTensor(name="w", shape=(4, 6), dtype="float32")
    second = placements.PARAMETERS._replace(partition=1)
    pieces = [
        Piece(tensor="w", slices=(rows, left), vector=placements.PARAMETERS, first=0),
        Piece(tensor="w", slices=(rows, right), vector=second, first=0),
    ]
    values = {
        placements.PARAMETERS: np.ascontiguousarray(whole[:, :4]).reshape(-1),
        second: np.ascontiguousarray(whole[:, 4:]).reshape(-1),
    }
    checkpoint = a_divided_checkpoint(tmp_path / "store", [tensor], pieces, values)
    export.export(checkpoint.path, tmp_path / "model")
    state = safetensors.torch.load_file(tmp_path / "model")
    assert np.array_equal(state["w"].numpy(), whole)


def an_averaging_checkpoint(folder: Path, *served: str) -> Path:
    """Parameters of 1, an average of 2, and what is served, which nobody keeps."""
    kept = {"average": 2.0, "velocity": 3.0}
    own = placements.PARAMETERS
    placement = placements.a_placement({own: 5}, 2, (*kept, *served))
    cuts = []
    for index in range(2):
        values = Values(Share(placement, index, 64), kept)
        values.tensor(own).fill_(1.0)
        cuts.append(writing.cut(1, values, ShardState(index=index, incarnation=1).notes()))
    return commit_cuts(folder, cuts).path


@pytest.mark.parametrize(
    ("vector", "value", "said"),
    [
        (None, 2.0, "average"),
        ("average", 2.0, "average"),
        ("parameters", 1.0, None),
        ("velocity", 3.0, "velocity"),
    ],
)
def test_what_a_job_keeps_can_be_exported_and_its_average_is_what_was_measured(
    tmp_path: Path, vector: str | None, value: float, said: str | None
) -> None:
    out = tmp_path / "model.safetensors"
    export.export(an_averaging_checkpoint(tmp_path / "store", "prediction"), out, vector)
    with safe_open(out, framework="pt") as file:
        assert file.get_tensor("weight").tolist() == [value] * 5
        assert file.metadata().get("disttrain.vector") == said


@pytest.mark.parametrize("vector", ["prediction", "frozen", "", "momentum"])
def test_what_no_shard_has_kept_is_not_exported(tmp_path: Path, vector: str) -> None:
    path = an_averaging_checkpoint(tmp_path / "store", "prediction")
    with pytest.raises(NoVector, match="name one of average, parameters, velocity"):
        export.export(path, tmp_path / "model.safetensors", vector)
