"""spec.audit in real runs: bounded ledgers that still prove what they can, or none at all."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from builders.batch_jobs import BATCH_JOB
from builders.commands import disttrain
from builders.runs import RunningJob
from disttrain.parameter_server import ledger
from disttrain.parameter_server.ledger import Kind

_OFTEN = ["spec.checkpoint.everySeconds=0.1", "spec.checkpoint.keepLast=1"]


def audit(folder: Path) -> tuple[int, str]:
    answer = disttrain("audit", folder)
    return answer.code, " ".join((answer.out + answer.err).split())


def has_folded(path: Path, kind: Kind, least: int = 1) -> Callable[[object], bool]:
    """Whether so many updates, or evaluations, of a ledger are folded."""

    def found(_: object) -> bool:
        records = ledger.read(path) if path.exists() else np.zeros(0, ledger.RECORD)
        folded = records[records["kind"] == kind]
        return int(np.sum(folded["sequence"] - folded["first"] + 1)) >= least

    return found


def test_folded_ledgers_show_that_a_run_with_deaths_kept_its_promises(tmp_path: Path) -> None:
    assignments = ["spec.audit=summary", "spec.stop.epochs=100000", *_OFTEN]
    with RunningJob(tmp_path, assignments) as job:
        incarnations = [
            ledger.path_of(job.output / "ledger", 0, incarnation) for incarnation in (1, 2)
        ]
        job.wait_until(has_folded(incarnations[0], Kind.PUSHES_FOLDED))
        job.kill("shard-0")
        job.wait_until(has_folded(incarnations[1], Kind.PUSHES_FOLDED))
        job.kill("replica-1")
        job.wait_until(lambda _: (job.output / "ledger" / "replica-1.i2.bin").exists())
        job.wait_until(has_folded(incarnations[1], Kind.PUSHES_FOLDED, least=500))
        job.interrupt()
        assert job.wait() == 130
        code, printed = audit(job.output)

    assert code == 0, printed
    assert "it is not checked on which versions they were computed" in printed


def test_a_batch_methods_evaluations_are_folded_and_compared(tmp_path: Path) -> None:
    # Folding needs a third checkpoint.
    slow = "spec.task.arguments={portion_seconds: 0.01}"
    with RunningJob(tmp_path, ["spec.audit=summary", slow, *_OFTEN], BATCH_JOB) as job:
        assert job.wait() == 0
        code, printed = audit(job.output)
        folded = has_folded(ledger.path_of(job.output / "ledger", 0, 1), Kind.COMMITS_FOLDED)(None)

    assert folded
    assert code == 0, printed
    assert "more are folded, compared as a whole" in printed


def test_without_ledgers_nothing_is_written_and_the_audit_says_why(tmp_path: Path) -> None:
    with RunningJob(tmp_path, ["spec.audit=off"]) as job:
        assert job.wait() == 0
        code, printed = audit(job.output)

    assert list((job.output / "ledger").glob("*.i*.bin")) == []
    assert code == 2
    assert "its spec.audit is off" in printed
