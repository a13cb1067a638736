"""Whether what shards counted of their losses outlived whatever ended them.

They count in mapped files, of which the kernel writes the pages some time later: a process may die
at any moment, the machine may not.
"""

import os
from pathlib import Path

from disttrain.launch.config import Supervisor
from disttrain.telemetry import append_file, logs

LOG = logs.get(__name__)

_THIS_BOOT = Path("/proc/sys/kernel/random/boot_id")


def losses_are_exact(noted: Path, supervisor: Supervisor, this_boot: Path = _THIS_BOOT) -> bool:
    """Notes the machine's present boot in the file `noted`; whether the run knows no other one.

    With a node goes what the shard's file had not on disk yet, or all of an emptyDir, so that on a
    cluster the counts are never exact. Nor are they where the file cannot be read. Raises OSError.
    """
    if supervisor is not Supervisor.LAUNCHER:
        return False
    boot = this_boot.read_text().strip()
    known = _known(noted)
    if known is None:
        return False
    if boot not in known:
        _note(noted, boot)
    return {*known, boot} == {boot}


def _known(noted: Path) -> list[str] | None:
    """None: there is something else than boots."""
    try:
        return noted.read_text().split()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        LOG.warning(
            "the boots that a run knew cannot be read: updates lost are counted at least",
            file=noted,
            error=error,
        )
        return None


def _note(noted: Path, boot: str) -> None:
    noted.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = append_file.descriptor(noted)
    try:
        os.write(descriptor, f"{boot}\n".encode())
        # It is for the time after the machine went down.
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
