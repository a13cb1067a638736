from collections.abc import Callable
from pathlib import Path

import pytest

from disttrain.coordinator.process import server
from disttrain.launch.config import Supervisor


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    (tmp_path / "boot_id").write_text("first\n")
    return tmp_path / "boot_id"


def test_counts_are_exact_until_the_machine_was_started_again(
    tmp_path: Path, machine: Path
) -> None:
    noted = tmp_path / "launch" / "boots"

    assert server.losses_are_exact(noted, Supervisor.LAUNCHER, machine)
    assert server.losses_are_exact(noted, Supervisor.LAUNCHER, machine)
    machine.write_text("second\n")
    assert not server.losses_are_exact(noted, Supervisor.LAUNCHER, machine)
    assert not server.losses_are_exact(noted, Supervisor.LAUNCHER, machine)
    assert noted.read_text() == "first\nsecond\n"


def _damage(noted: Path) -> None:
    noted.write_bytes(b"\xff\xfe\x00\x81")


@pytest.mark.parametrize("damage", [_damage, Path.mkdir])
def test_of_a_file_that_cannot_be_read_they_are_not_known_to_be(
    tmp_path: Path,
    machine: Path,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    noted = tmp_path / "boots"
    damage(noted)

    assert not server.losses_are_exact(noted, Supervisor.LAUNCHER, machine)
    assert "boots that a run knew cannot be read" in caplog.text


def test_on_a_cluster_they_never_are(tmp_path: Path, machine: Path) -> None:
    assert not server.losses_are_exact(tmp_path / "boots", Supervisor.NODE, machine)
    assert not (tmp_path / "boots").exists()
