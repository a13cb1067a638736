"""The version stands in several files, and is one."""

import re
import tomllib
from pathlib import Path

import yaml

from builders import product_images
from disttrain_operator.manifests.config import ManifestConfig

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_chart_operator_and_documents_have_the_projects_version() -> None:
    chart = yaml.safe_load((ROOT / "charts/disttrain-operator/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    assert ManifestConfig().image == f"disttrain-runtime:{VERSION}"
    assert product_images.VERSION == VERSION
    shown = {
        version
        for file in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        for version in re.findall(r"disttrain-(?:operator|runtime):([\w.]+)", file.read_text())
    }
    assert shown == {VERSION}
