"""What of a run folder is audited at all."""

from pathlib import Path

import pytest

from builders.jobs import SMALL
from builders.ledgers import LoggedRun
from disttrain.audit import logs, reading
from disttrain.audit.reading import NothingToAudit
from disttrain.launch.run_folder import RunFolder


@pytest.mark.parametrize("off", ["off", "'off'"])
def test_a_run_without_ledgers_is_refused_by_its_level_with_the_remedy(
    tmp_path: Path, off: str
) -> None:
    run = RunFolder(tmp_path)
    run.ledger.mkdir()
    run.job.write_text(f"{SMALL}  audit: {off}\n")
    with pytest.raises(NothingToAudit, match=r"spec\.audit is off; .* --set spec\.audit=summary"):
        reading.read(tmp_path)


def test_a_run_that_was_resumed_with_ledgers_lacks_the_first_ones() -> None:
    run = LoggedRun()
    run.resume([4, 4], shards=2)
    run.shards = {
        incarnation: log for incarnation, log in run.shards.items() if incarnation[1] > 1000
    }
    run.replicas = {
        incarnation: log for incarnation, log in run.replicas.items() if incarnation[1] > 1000
    }

    finding = logs.check(run.evidence())

    assert finding.violations == (
        "no log is of the first 1 runs in the folder: was their spec.audit off?",
    )
