"""What the test cluster reads of control groups, on trees of both versions."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster import cgroups, layout

NAME = "ours"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    return tmp_path


def a_group(folder: Path, *processes: int) -> Path:
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").write_text("".join(f"{each}\n" for each in processes))
    return folder


def v1(root: Path) -> None:
    for hierarchy in ("cpu,cpuacct", "memory", "cpuset", "unified"):
        a_group(root / hierarchy, 1)
    (root / "cpu").symlink_to("cpu,cpuacct")


def v2(root: Path) -> None:
    (root / "cgroup.controllers").write_text("cpu memory\n")
    a_group(root / "kubepods", 1)


def test_the_version_is_told_by_the_file_of_controllers(tree: Path) -> None:
    v1(tree)
    assert cgroups.version() == 1
    v2(tree)
    assert cgroups.version() == 2


def test_members_of_version_1_are_those_of_every_hierarchy_and_below(tree: Path) -> None:
    v1(tree)
    a_group(tree / "cpu,cpuacct" / NAME, 11)
    a_group(tree / "memory" / NAME, 12)
    a_group(tree / "memory" / NAME / "pod" / "container", 13)
    a_group(tree / "unified" / NAME, 99)
    assert cgroups.members(NAME) == {11, 12, 13}


def test_members_of_version_2_are_those_of_the_one_tree(tree: Path) -> None:
    v2(tree)
    a_group(tree / NAME / "pod", 11, 12)
    assert cgroups.members(NAME) == {11, 12}


@pytest.mark.parametrize("version", [v1, v2])
def test_a_group_that_is_not_there_has_no_members(
    tree: Path, version: Callable[[Path], None]
) -> None:
    version(tree)
    assert cgroups.members(NAME) == set()


def test_what_is_left_is_told_once_for_each_hierarchy(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "NAME", NAME)
    v1(tree)
    for hierarchy in ("cpu,cpuacct", "memory"):
        a_group(tree / hierarchy / NAME)
    assert cgroups.left() == [str(tree / h / NAME) for h in ("cpu,cpuacct", "memory")]
