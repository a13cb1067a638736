"""Which code a benchmark has measured."""

import subprocess
from pathlib import Path


def measured_version() -> str:
    """The commit of this checkout, with "-dirty" after it if files have changed since."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    here = Path(__file__).parent
    found = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"
