"""What the README shows a newcomer works as it stands there."""

import json
import re
from pathlib import Path

from builders.commands import disttrain

README = (Path(__file__).parents[2] / "README.md").read_text()
OWN_JOB = README.partition("## A job of your own\n")[2].partition("\n## ")[0]


def block(language: str) -> str:
    """The only block of code in this language of the section."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", OWN_JOB, re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_job_of_your_own_is_valid_and_reaches_its_target(tmp_path: Path) -> None:
    (tmp_path / "spirals.py").write_text(block("python"))
    (tmp_path / "job.yaml").write_text(block("yaml"))
    assert disttrain("validate", "job.yaml", folder=tmp_path).code == 0

    answer = disttrain("run", "job.yaml", "--output", "runs/first", folder=tmp_path)

    assert answer.code == 0, answer.err
    summary = json.loads((tmp_path / "runs" / "first" / "summary.json").read_text())
    assert (summary["phase"], summary["reason"]) == ("Complete", "TargetMetric")
