"""Writes what is made from code and committed.

`python -m disttrain_generators.generated_files ROOT [--check]`; ROOT is the repository. With
`--check` nothing is written, and the exit code is 1 if a file is not current.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from disttrain.job import fields
from disttrain_generators import crd_file, reference_page
from disttrain_monitoring import grafana, metrics_page, rules
from disttrain_monitoring.fleet import FLEET
from disttrain_monitoring.one_job import ONE_JOB

REMEDY = "run `make generate` and commit the result"


def main(arguments: Sequence[str]) -> int:
    """Write or check the files below a folder; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m disttrain_generators.generated_files")
    parser.add_argument("root", type=Path)
    parser.add_argument("--check", action="store_true", help="fail if a file is not current")
    options = parser.parse_args(arguments)
    if options.check:
        stale = stale_files(options.root)
        sys.stderr.writelines(f"{file}: not current; {REMEDY}\n" for file in stale)
        return 1 if stale else 0
    for file, text in files(options.root).items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return 0


def stale_files(root: Path) -> list[Path]:
    """Return the generated files below a folder that are missing or not what would be written."""
    return [file for file, text in files(root).items() if not _holds(file, text)]


def _holds(file: Path, text: str) -> bool:
    return file.is_file() and file.read_text(encoding="utf-8") == text


def files(root: Path) -> dict[Path, str]:
    """Return what is generated, by where it belongs."""
    reference, chart = root / "docs" / "reference", root / "charts" / "disttrain-operator"
    return {
        reference / "manifest.md": reference_page.page(),
        reference / "disttrain-job.schema.json": fields.schema_text(),
        reference / "crd.yaml": crd_file.plain(),
        reference / "metrics.md": metrics_page.page(),
        chart / "templates" / "crd.yaml": crd_file.template(),
        chart / "dashboards" / "fleet.json": grafana.as_json(FLEET),
        chart / "dashboards" / "job.json": grafana.as_json(ONE_JOB),
        chart / "alerts" / "rules.yaml": rules.as_yaml(),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
