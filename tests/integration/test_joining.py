"""Replicas that join a run from another folder, by a token that is good once."""

import signal
import time
from pathlib import Path

import pytest

from builders.joiners import Joiner, a_joinable_run, free_ports, has_member, invite
from disttrain.launch import invitation
from disttrain.launch.errors import NotTakenIn
from disttrain.launch.exit_code import ExitCode
from disttrain.launcher import enrolment, joining


def test_a_joiner_trains_is_killed_comes_again_leaves_and_the_audit_passes(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports()}"
    with a_joinable_run(tmp_path / "run", address, ["spec.stop.epochs=12"]) as job:
        words = invite(job)
        with Joiner(tmp_path / "one", words) as killed:
            job.wait_until(has_member("replica-1"))
            job.wait_until(lambda status: _samples(status, "replica-1") > 0)
        job.wait_until(has_member("replica-1", "dead"))
        with Joiner(tmp_path / "again", words) as late:
            assert late.wait() == ExitCode.USAGE
            assert "the token was used before" in late.printed()
        with Joiner(tmp_path / "two", invite(job)) as leaving:
            job.wait_until(lambda status: _samples(status, "replica-1") > 0)
            leaving.send_signal(signal.SIGTERM)
            assert leaving.wait() == ExitCode.INTERRUPTED
        job.wait_until(has_member("replica-1", "left"))
        assert job.wait() == 0, job.printed()
        killed.hand_over_ledgers(job)
        leaving.hand_over_ledgers(job)
        summary = job.summary()

    assert summary["epochs"] == 12
    # What the killed one had under way is done again, and nothing else.
    assert summary["samplesRequeued"] > 0
    job.assert_promises_held()


def test_who_is_not_good_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{free_ports()}"
    with a_joinable_run(tmp_path / "run", address, ["spec.stop.epochs=400"]) as job:
        good, short = invite(job), invite(job, "--expires", "1s")
        until = time.monotonic() + 1.0
        token = good[-1]
        wrong = token.replace(token.split(".")[2], "A" * 43)
        elsewhere = token[:-64] + "0" * 64

        _assert_refused(tmp_path / "wrong", [*good[:-1], wrong], "not one of this run")
        _assert_refused(tmp_path / "elsewhere", [*good[:-1], elsewhere], "is not the run that")
        _assert_refused(tmp_path / "torn", [*good[:-1], token[:-1]], "--token: this is no token")
        other = tmp_path / "other code"
        with Joiner(other, ["join", address, "--token", "none"]) as prepared:
            prepared.wait()
        (other / "counting.py").write_text("# Another one.\n")
        _assert_refused(other, good, "counting.py is another one than the job's")
        # The token is still good: it counts as used by who is taken in alone.
        (other / "counting.py").unlink()
        _assert_refused(other, good, "counting.py is missing")
        monkeypatch.setattr(enrolment, "version", lambda: "0.0.0")
        where, port = address.split(":")
        parsed = invitation.parse_token(token)
        with pytest.raises(NotTakenIn, match=r"0\.0\.0 asks to join"):
            joining.apply(where, int(port), parsed, other, tmp_path)
        while time.monotonic() < until:
            time.sleep(0.05)
        _assert_refused(tmp_path / "late", short, "has expired")

        assert not (tmp_path / "wrong/output/launch/replica.json").exists()
        assert [one["name"] for one in job.status()["members"]][-1] == "replica-0"


def test_a_text_that_is_no_token_is_refused(tmp_path: Path) -> None:
    with Joiner(tmp_path / "one", ["join", "127.0.0.1:1", "--token", "none"]) as joiner:
        assert joiner.wait() == ExitCode.USAGE
        assert "--token: this is no token of `disttrain invite`" in joiner.printed()


def _samples(status: dict[str, object], name: str) -> int:
    members = status["members"]
    assert isinstance(members, list)
    return max(
        (int(one.get("samples", 0)) for one in members if one["name"] == name and _lives(one)),
        default=0,
    )


def _lives(member: dict[str, object]) -> bool:
    return member["state"] == "live"


def _assert_refused(folder: Path, words: list[str], why: str) -> None:
    with Joiner(folder, words) as joiner:
        assert joiner.wait() == ExitCode.USAGE
        assert why in joiner.printed()
