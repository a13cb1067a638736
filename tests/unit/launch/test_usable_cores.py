"""The quota of a container, on trees of files as the two versions of control groups show them."""

import os
from pathlib import Path

import pytest

from disttrain.launch import linux

ALL = 64
"""Cores of the machine."""

V1 = "12:cpuset:{0}\n4:cpu,cpuacct:{0}\n1:name=systemd:{0}\n0::/\n"
V2 = "0::{0}\n"


@pytest.fixture(autouse=True)
def _a_large_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(ALL)))


def tree(root: Path, memberships: str, **files: str) -> Path:
    """A root with control groups; `files` by path below sys/fs/cgroup."""
    for name, text in {
        "proc/self/cgroup": memberships,
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def v1(folder: str, quota: int, period: int = 100_000) -> dict[str, str]:
    return {
        f"{folder}/cpu.cfs_quota_us": f"{quota}\n",
        f"{folder}/cpu.cfs_period_us": f"{period}\n",
    }


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("150000 100000", 2), ("1000 100000", 1), ("max 100000", ALL), ("9900000 100000", ALL)],
)
def test_a_container_of_version_2(tmp_path: Path, quota: str, expected: int) -> None:
    root = tree(tmp_path, V2.format("/"), **{"cpu.max": f"{quota}\n"})
    assert linux.usable_cores(root) == expected


@pytest.mark.parametrize(
    ("quota", "expected"), [(150_000, 2), (1000, 1), (-1, ALL), (9_900_000, ALL)]
)
def test_a_container_of_version_1_that_reads_the_machines_path(
    tmp_path: Path, quota: int, expected: int
) -> None:
    memberships = V1.format("/kubepods/burstable/pod1/c2")
    assert linux.usable_cores(tree(tmp_path, memberships, **v1("cpu", quota))) == expected


def test_a_pod_without_a_group_of_its_own_has_the_least_above_it(tmp_path: Path) -> None:
    """As in a service of systemd, or in a sandbox on the machine itself."""
    two = tree(
        tmp_path / "2",
        V2.format("/team/service"),
        **{"team/cpu.max": "300000 100000", "team/service/cpu.max": "max 100000"},
    )
    one = tree(
        tmp_path / "1",
        V1.format("/team/service"),
        **v1("cpu/team", 300_000),
        **v1("cpu/team/service", 500_000),
    )
    assert (linux.usable_cores(two), linux.usable_cores(one)) == (3, 3)


def test_the_quota_of_another_is_not_ours(tmp_path: Path) -> None:
    root = tree(tmp_path, V2.format("/../other"), **{"other/cpu.max": "100000 100000"})
    assert linux.usable_cores(root) == ALL


@pytest.mark.parametrize("memberships", ["", "damaged\n", V1.format("/"), V2.format("/")])
def test_without_any_quota_all_cores_are_ours(tmp_path: Path, memberships: str) -> None:
    assert linux.usable_cores(tree(tmp_path, memberships)) == ALL
    assert linux.usable_cores(tmp_path / "nothing") == ALL


def test_a_damaged_quota_is_none(tmp_path: Path) -> None:
    assert linux.usable_cores(tree(tmp_path, V2.format("/"), **{"cpu.max": "a lot"})) == ALL


def test_never_more_than_this_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert linux.usable_cores() == 1
