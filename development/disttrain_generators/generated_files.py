"""Writes files made of types: `python -m disttrain_generators.generated_files ROOT [--check]`.

ROOT is the repository. With `--check` nothing is written; the exit code is 1 if a file is not
current.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from disttrain.job import fields
from disttrain_generators import committed_files, crd_file, reference_page


def main(arguments: Sequence[str]) -> int:
    """Write or check the files below a folder; return the exit code."""
    return committed_files.main("disttrain_generators.generated_files", files, arguments)


def stale_files(root: Path) -> list[Path]:
    """Return the generated files below a folder that are missing or not what would be written."""
    return committed_files.stale(files(root))


def files(root: Path) -> dict[Path, str]:
    """Return what is generated, by where it belongs."""
    reference, chart = root / "docs" / "reference", root / "charts" / "disttrain-operator"
    return {
        reference / "manifest.md": reference_page.page(),
        reference / "disttrain-job.schema.json": fields.schema_text(),
        reference / "crd.yaml": crd_file.plain(),
        chart / "templates" / "crd.yaml": crd_file.template(),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
