import re
import sys
from itertools import count
from pathlib import Path

import pytest

from disttrain.task.errors import ArgumentsError, EntrypointError, UserCodeError
from disttrain.task.loading import load_task

_numbers = count()

HEADER = """\
import disttrain
from torch import nn

"""

COMPLETE = (
    HEADER
    + """
class Complete(disttrain.Task):
    def __init__(self, hidden: int = 4, *, depth: int = 1) -> None:
        self.hidden, self.depth = hidden, depth
    def model(self):
        return nn.Linear(1, self.hidden)
    def dataset(self, split):
        return list(range(10))
    def loss(self, model, batch):
        return model(batch).mean()
"""
)


def a_module(folder: Path, text: str = COMPLETE) -> str:
    """Write a module and return its name, `user_task_N`."""
    name = f"user_task_{next(_numbers)}"
    (folder / f"{name}.py").write_text(text)
    return name


def test_a_task_is_found_in_the_folder_and_gets_its_arguments(tmp_path: Path) -> None:
    task = load_task(f"{a_module(tmp_path)}:Complete", {"hidden": 7, "depth": 2}, tmp_path)
    assert type(task).__name__ == "Complete"
    assert vars(task) == {"hidden": 7, "depth": 2}


def test_a_module_of_a_package_is_found(tmp_path: Path) -> None:
    package = tmp_path / "user_task_package"
    package.mkdir()
    name = a_module(package)
    task = load_task(f"user_task_package.{name}:Complete", {}, tmp_path)
    assert type(task).__module__ == f"user_task_package.{name}"


def test_the_folder_comes_first_and_once(tmp_path: Path) -> None:
    name = a_module(tmp_path)
    load_task(f"{name}:Complete", {}, tmp_path)
    load_task(f"{name}:Complete", {}, tmp_path)
    assert sys.path[0] == str(tmp_path)
    assert sys.path.count(str(tmp_path)) == 1


def test_what_the_module_imports_later_is_found(tmp_path: Path) -> None:
    neighbour = a_module(tmp_path, "VALUE = 3\n")
    text = COMPLETE.replace(
        "self.hidden, self.depth", f"import {neighbour}; self.hidden, self.depth"
    )
    assert load_task(f"{a_module(tmp_path, text)}:Complete", {}, tmp_path)


def test_an_absent_module_names_the_folder_and_the_nearest_file(tmp_path: Path) -> None:
    name = a_module(tmp_path)
    with pytest.raises(EntrypointError) as caught:
        load_task(f"{name.replace('task', 'tsak')}:Complete", {}, tmp_path)
    assert str(caught.value) == (
        f"spec.task.entrypoint: there is no module '{name.replace('task', 'tsak')}' in {tmp_path} "
        f"nor among the installed packages; did you mean '{name}'?"
    )


def test_an_absent_module_without_a_near_one_proposes_nothing(tmp_path: Path) -> None:
    with pytest.raises(EntrypointError, match=r"no module 'nowhere\.at_all' .* packages$"):
        load_task("nowhere.at_all:Task", {}, tmp_path)


def test_a_missing_import_of_the_module_is_not_taken_for_its_own_absence(tmp_path: Path) -> None:
    name = a_module(tmp_path, "import user_task_that_is_not_installed\n")
    with pytest.raises(UserCodeError) as caught:
        load_task(f"{name}:Complete", {}, tmp_path)
    text = str(caught.value)
    assert text.startswith(f"importing '{name}' raised ModuleNotFoundError:")
    assert f'{name}.py", line 1' in text
    assert "No module named 'user_task_that_is_not_installed'" in text
    assert "importlib" not in text


def test_a_syntax_error_shows_its_line(tmp_path: Path) -> None:
    name = a_module(tmp_path, "x = 1\ndef broken(:\n")
    with pytest.raises(UserCodeError, match=rf"{name}\.py\", line 2"):
        load_task(f"{name}:Complete", {}, tmp_path)


def test_a_module_that_is_a_link_to_a_file_elsewhere_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    name = a_module(tmp_path / "data", COMPLETE)
    (tmp_path / f"{name}.py").symlink_to(tmp_path / "data" / f"{name}.py")

    assert load_task(f"{name}:Complete", {}, tmp_path)


def test_a_module_hidden_by_another_of_its_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(COMPLETE)
    with pytest.raises(EntrypointError, match=r"'json' is already the module .*give "):
        load_task("json:Complete", {}, tmp_path)


def test_a_name_that_is_like_none_is_not_guessed(tmp_path: Path) -> None:
    name = a_module(tmp_path, COMPLETE.replace("class Complete", "class MeasNone"))
    with pytest.raises(EntrypointError) as caught:
        load_task(f"{name}:Nope", {}, tmp_path)
    assert "did you mean" not in str(caught.value)


def test_an_absent_class_names_the_nearest_class_of_the_module(tmp_path: Path) -> None:
    with pytest.raises(EntrypointError, match=r"defines no 'Compleet'; did you mean 'Complete'\?$"):
        load_task(f"{a_module(tmp_path)}:Compleet", {}, tmp_path)


@pytest.mark.parametrize(
    "text", ["class NoTask: pass\n", "def NoTask(): pass\n", "NoTask = 3\n"], ids=str.split
)
def test_something_that_extends_no_task_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(EntrypointError, match=r"must be a class that extends disttrain\.Task$"):
        load_task(f"{a_module(tmp_path, text)}:NoTask", {}, tmp_path)


def test_an_incomplete_task_is_told_what_it_lacks(tmp_path: Path) -> None:
    text = f"{HEADER}\nclass Half(disttrain.Task):\n    def model(self): return nn.Linear(1, 1)\n"
    with pytest.raises(EntrypointError, match=r"'Half' in .* lacks dataset\(\), loss\(\)$"):
        load_task(f"{a_module(tmp_path, text)}:Half", {}, tmp_path)


def test_all_wrong_arguments_are_named_at_once(tmp_path: Path) -> None:
    text = COMPLETE.replace("depth: int = 1", "depth: int")
    with pytest.raises(ArgumentsError) as caught:
        load_task(f"{a_module(tmp_path, text)}:Complete", {"hiden": 3, "colour": 1}, tmp_path)
    assert str(caught.value).splitlines() == [
        "spec.task.arguments.hiden: Complete takes no such argument; did you mean 'hidden'?",
        "spec.task.arguments.colour: Complete takes no such argument; it takes hidden, depth",
        "spec.task.arguments.depth: required by Complete",
    ]


def test_a_task_without_arguments_says_so(tmp_path: Path) -> None:
    text = re.sub(r"    def __init__.*\n.*\n", "", COMPLETE)
    with pytest.raises(ArgumentsError, match=r"no such argument; it takes none$"):
        load_task(f"{a_module(tmp_path, text)}:Complete", {"hidden": 3}, tmp_path)


def test_a_task_may_take_any_argument(tmp_path: Path) -> None:
    text = COMPLETE.replace("depth: int = 1", "depth: int = 1, **others")
    assert load_task(f"{a_module(tmp_path, text)}:Complete", {"colour": "red"}, tmp_path)


def test_a_constructor_that_raises_shows_only_the_users_frames(tmp_path: Path) -> None:
    text = COMPLETE.replace("self.hidden, self.depth = hidden, depth", "self.hidden = int('many')")
    name = a_module(tmp_path, text)
    with pytest.raises(UserCodeError) as caught:
        load_task(f"{name}:Complete", {}, tmp_path)
    assert isinstance(caught.value.__cause__, ValueError)
    text = str(caught.value)
    assert text.startswith("Complete(...) raised ValueError:\nTraceback (most recent call last):")
    assert re.findall(r'File "(.*?)"', text) == [str(tmp_path / f"{name}.py")]
    assert text.endswith("ValueError: invalid literal for int() with base 10: 'many'")
