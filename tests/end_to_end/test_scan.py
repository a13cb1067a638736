"""checkov finds nothing in the chart and the images, and the images' bill of materials is whole."""

import json
import os
import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from builders import product_images
from cluster import Kubectl, binaries, commands

SCRIPTS: Final = product_images.REPOSITORY / "scripts"
UV: Final = os.pathsep.join([str(product_images.REPOSITORY / ".venv/uv/bin"), os.environ["PATH"]])
"""uv may be in PATH, or where scripts/environment.sh put it."""
LIMIT: Final = timedelta(minutes=5)
"""The first time each program is fetched from the package index."""
IMAGES: Final = ("operator", "runtime")

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(shutil.which("uv", path=UV) is None, reason="uv is not installed"),
    pytest.mark.timeout(LIMIT.total_seconds() + 60, func_only=True),
]


def test_checkov_finds_nothing(kubectl: Kubectl, tmp_path: Path) -> None:
    # kubectl: the cluster's fixture builds helm, or says why it cannot.
    environment = {"PATH": os.pathsep.join([str(binaries.path("helm").parent), UV])}

    printed = commands.run(SCRIPTS / "scan.sh", tmp_path, limit=LIMIT, environment=environment)

    found = re.findall(r"Passed checks: (\d+), Failed checks: (\d+)", printed)
    assert len(found) == 2, f"the chart and the images are scanned: {printed}"
    assert all(int(passed) > 100 and failed == "0" for passed, failed in found)


def test_the_bill_of_materials_names_what_is_locked(tmp_path: Path) -> None:
    commands.run(SCRIPTS / "sbom.sh", tmp_path, limit=LIMIT, environment={"PATH": UV})

    for image in IMAGES:
        bill: dict[str, Any] = json.loads((tmp_path / f"{image}.cdx.json").read_text())
        told = {(each["name"], each["version"]) for each in bill["components"]}
        assert told >= locked(image)


def locked(image: str) -> set[tuple[str, str]]:
    lock = product_images.REPOSITORY / "images" / image / "requirements.lock"
    found = re.findall(r"^([\w.-]+)==([\w.+-]+)", lock.read_text(), re.MULTILINE)
    assert found
    return set(found)
