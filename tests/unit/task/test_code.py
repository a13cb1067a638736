"""Whether two folders hold the same code of a task."""

from pathlib import Path

import pytest

from disttrain.task import code
from disttrain.task.errors import CodeError


def test_only_python_files_count_and_no_caches_or_results(tmp_path: Path) -> None:
    for name in ("task.py", "notes.md", "__pycache__/old.py", "runs/one/copy.py", ".git/hook.py"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x = 1\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/layer.py").write_text("y = 2\n")

    assert list(code.hashes(tmp_path)) == ["task.py", "parts/layer.py"]


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ({"a.py": "1", "b.py": "2"}, ""),
        ({"a.py": "1"}, "b.py is missing"),
        ({"a.py": "1", "b.py": "3"}, "b.py is another one"),
        ({"a.py": "1", "b.py": "2", "torch.py": "4"}, "torch.py is no file of the job's"),
    ],
)
def test_the_first_difference_is_named(theirs: dict[str, str], said: str) -> None:
    found = code.first_difference({"a.py": "1", "b.py": "2"}, theirs)

    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_a_folder_that_is_no_task_of_its_own_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "MOST_FILES", 2)
    for number in range(3):
        (tmp_path / f"{number}.py").touch()

    with pytest.raises(CodeError, match="more than 2 Python files: keep the task in a folder"):
        code.hashes(tmp_path)


def test_a_file_that_cannot_be_read_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")

    with pytest.raises(CodeError, match=r"gone\.py cannot be read .*remove it"):
        code.hashes(tmp_path)
