"""`python tests/changed.py`: unit tests and simulations of the folders that changed, one a line.

Changed is what differs from the commit at which this branch left main, or, on main itself, from
the commit before; what is not committed counts too.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
_PACKAGES = {
    "runtime/disttrain": "",
    "operator/disttrain_operator": "operator",
    "development/disttrain_generators": "generators",
    "development/disttrain_monitoring": "monitoring",
}
"""Where in tests/unit and tests/simulation the tests of a package lie."""


def main() -> int:
    """Print them; nothing when only documents changed."""
    for path in covering(_changed(), ROOT):
        sys.stdout.write(f"{path}\n")
    return 0


def covering(changed: Iterable[str], root: Path) -> list[str]:
    """What of the tree under `root` tests the changed files; the deepest folder that exists."""
    found = {path for name in changed for path in _covering_one(PurePosixPath(name), root)}
    inside = {path for path in found if any(parent in found for parent in path.parents)}
    return sorted(str(path) for path in found - inside)


def _covering_one(name: PurePosixPath, root: Path) -> Iterator[PurePosixPath]:
    parts = name.parts
    if parts[:2] in {("tests", tier) for tier in ("unit", "simulation", "contract")}:
        if name.name.startswith("test_") and (root / name).exists():
            yield name
        return
    folder = _PACKAGES.get("/".join(parts[:2]))
    for tier in ("unit", "simulation") if folder is not None else ():
        yield from _deepest(PurePosixPath("tests", tier, folder or ".", *parts[2:-1]), root)


def _deepest(folder: PurePosixPath, root: Path) -> Iterator[PurePosixPath]:
    for path in (folder, *folder.parents):
        if len(path.parts) < 3:
            return
        if (root / path).is_dir():
            yield path
            return


def _changed() -> list[str]:
    base = _git("merge-base", "HEAD", "main").strip()
    if base == _git("rev-parse", "HEAD").strip():
        base = "HEAD~1"
    listed = _git("diff", "--name-only", base) + _git("ls-files", "-o", "--exclude-standard")
    return listed.splitlines()


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
