"""Small files are replaced whole or not at all."""

from pathlib import Path

import pytest

from disttrain.launch import atomic_file


def test_a_failed_replacement_leaves_nothing_beside_the_old_file(tmp_path: Path) -> None:
    old = tmp_path / "status"
    old.mkdir()
    with pytest.raises(IsADirectoryError):
        atomic_file.replace(old, b"new")
    assert list(tmp_path.iterdir()) == [old]
