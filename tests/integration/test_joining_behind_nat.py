"""A replica behind a router that masquerades joins a run: it only dials out."""

from pathlib import Path

from builders.behind_nat import PUBLIC, Nat
from builders.joiners import Joiner, RunElsewhere, invite

PORT = 7000


def test_a_joiner_that_nobody_can_connect_to_trains(tmp_path: Path) -> None:
    address = f"{PUBLIC}:{PORT}"
    with Nat() as nat:
        run = RunElsewhere(tmp_path / "run", nat.public, address, "spec.stop.epochs=8")
        with run as job, Joiner(tmp_path / "joiner", invite(job), nat.hidden) as joiner:
            job.wait_until(_has_trained)
            assert job.wait() == 0, job.printed()
            assert joiner.wait() == 0, joiner.printed()
            joiner.hand_over_ledgers(job)
            summary = job.summary()

    assert summary["epochs"] == 8
    assert summary["samplesRepeated"] == 0
    job.assert_promises_held()


def _has_trained(status: dict[str, object]) -> bool:
    members = status["members"]
    assert isinstance(members, list)
    return any(one["name"] == "replica-1" and one.get("samples", 0) > 0 for one in members)
