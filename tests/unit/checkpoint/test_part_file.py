"""Files of shards: streamed in, hashed, and read by ranges."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from disttrain.checkpoint import part_file
from disttrain.checkpoint.errors import Corrupt, NotWritten
from disttrain.checkpoint.part_file import Content
from disttrain.checkpoint.tensor_file import Tensor


def _content(values: np.ndarray, pieces: int = 3) -> Content:
    kind = {"float32": "F32", "int64": "I64"}[values.dtype.name]
    cut = np.array_split(values.reshape(-1), pieces)
    return Content(
        tensor=Tensor(name=f"of {values.size}", type=kind, shape=values.shape),
        pieces=[part.data for part in cut],
    )


def test_what_was_written_is_read_by_ranges(tmp_path: Path) -> None:
    file, values = tmp_path / "shard", np.arange(1000, dtype=np.float32)
    table = np.arange(12, dtype=np.int64).reshape(3, 4)
    part_file.write(file, [_content(values), _content(table)], {"version": "5"})
    with part_file.opened(file) as found:
        into = np.zeros(300, np.float32)
        found.read("of 1000", 650, into.data)
        assert np.array_equal(into, values[650:950])
        assert found.read_all("of 12") == table.tobytes()
        assert found.tensors["of 12"].shape == (3, 4)
        assert found.metadata == {"version": "5"}


def test_the_hash_is_that_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "shard"
    written = part_file.write(file, [_content(np.ones(100, np.float32))], {})
    assert part_file.digest_of(file) == written
    assert written.bytes == file.stat().st_size
    with safe_open(file, "np") as library:
        assert library.get_tensor("of 100").sum() == 100


def test_memory_stays_flat_while_a_file_is_streamed(tmp_path: Path) -> None:
    piece = memoryview(bytes(1024 * 1024))

    def pieces() -> Iterator[memoryview]:
        yield from (piece for _ in range(32))

    content = Content(
        tensor=Tensor(name="a", type="U8", shape=(32 * piece.nbytes,)), pieces=pieces()
    )
    tracemalloc.start()
    try:
        part_file.write(tmp_path / "shard", [content], {})
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [99, 101])
def test_pieces_of_another_length_leave_no_file(tmp_path: Path, count: int) -> None:
    tensor = Tensor(name="a", type="U8", shape=(100,))
    with pytest.raises(ValueError, match=f"its pieces had {count}"):
        part_file.write(tmp_path / "shard", [Content(tensor=tensor, pieces=[bytes(count)])], {})
    assert list(tmp_path.iterdir()) == []


def test_an_error_while_taking_pieces_leaves_no_file(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"12"
        message = "the snapshot was abandoned"
        raise RuntimeError(message)

    tensor = Tensor(name="a", type="U8", shape=(100,))
    with pytest.raises(RuntimeError, match="abandoned"):
        part_file.write(tmp_path / "shard", [Content(tensor=tensor, pieces=pieces())], {})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotWritten, match="No such file or directory"):
        part_file.write(tmp_path / "none" / "shard", [], {})


def test_reading_beyond_a_tensor_or_an_unknown_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "shard"
    part_file.write(file, [_content(np.ones(10, np.float32))], {})
    with part_file.opened(file) as found:
        with pytest.raises(Corrupt, match="of 10 has 40 bytes, 44 are wanted"):
            found.read("of 10", 8, memoryview(bytearray(12)))
        with pytest.raises(Corrupt, match="no tensor 'x'"):
            found.read_all("x")


@pytest.mark.parametrize("keep", [0, 7, 8, 20, 100, -1])
def test_a_truncated_file_is_refused_when_opened(tmp_path: Path, keep: int) -> None:
    file = tmp_path / "shard"
    part_file.write(file, [_content(np.ones(10, np.float32))], {})
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(Corrupt, match="shard"), part_file.opened(file):
        pass


def test_a_small_file_is_not_read_beyond_its_limit(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"12345")
    assert part_file.small_content(tmp_path / "small", 5) == b"12345"
    with pytest.raises(Corrupt, match="it has 5 bytes; at most 4 are read"):
        part_file.small_content(tmp_path / "small", 4)


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Corrupt, match="no regular file"):
        part_file.digest_of(tmp_path)
