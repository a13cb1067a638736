"""Whether what shards counted of their losses outlived whatever ended them.

They count in mapped files, of which the kernel writes the pages some time later: a process may die
at any moment, the machine may not.
"""

import os
from pathlib import Path

from disttrain.launch.config import Supervisor
from disttrain.telemetry import append_file

_THIS_BOOT = Path("/proc/sys/kernel/random/boot_id")


def losses_are_exact(noted: Path, supervisor: Supervisor, this_boot: Path = _THIS_BOOT) -> bool:
    """Notes the machine's present boot in the file `noted`; whether the run knows no other one.

    With a node goes what the shard's file had not on disk yet, or all of an emptyDir, so that on a
    cluster the counts are never exact. Raises OSError.
    """
    if supervisor is not Supervisor.LAUNCHER:
        return False
    boot = this_boot.read_text().strip()
    known = noted.read_text().split() if noted.exists() else []
    if boot not in known:
        _note(noted, boot)
    return {*known, boot} == {boot}


def _note(noted: Path, boot: str) -> None:
    noted.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = append_file.descriptor(noted)
    try:
        os.write(descriptor, f"{boot}\n".encode())
        # It is for the time after the machine went down.
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
