"""Writes what is made from this code.

`python -m disttrain_monitoring.generated_files ROOT [--check]`; ROOT is the repository. With
`--check` nothing is written, and the exit code is 1 if a file is not current.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from disttrain_generators import committed_files
from disttrain_monitoring import grafana, metrics_page, rules
from disttrain_monitoring.fleet import FLEET
from disttrain_monitoring.one_job import ONE_JOB


def main(arguments: Sequence[str]) -> int:
    """Write or check the files below a folder; return the exit code."""
    return committed_files.main("disttrain_monitoring.generated_files", files, arguments)


def stale_files(root: Path) -> list[Path]:
    """Return the generated files below a folder that are missing or not what would be written."""
    return committed_files.stale(files(root))


def files(root: Path) -> dict[Path, str]:
    """Return what is generated, by where it belongs."""
    chart = root / "charts" / "disttrain-operator"
    return {
        chart / "dashboards" / "fleet.json": grafana.as_json(FLEET),
        chart / "dashboards" / "job.json": grafana.as_json(ONE_JOB),
        chart / "alerts" / "rules.yaml": rules.as_yaml(),
        root / "docs" / "reference" / "metrics.md": metrics_page.page(),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
