"""Replicas that join a run from another folder, by a token that is good once."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from builders.joiners import (
    Invited,
    Joiner,
    a_joinable_run,
    command,
    free_ports,
    has_member,
    invite,
)
from builders.runs import TASKS
from disttrain.launch import invitation
from disttrain.launch.errors import NotTakenIn
from disttrain.launch.exit_code import ExitCode
from disttrain.launcher import enrolment, joining

LOCAL_STEPS = "spec.strategy={localSteps: {steps: 6, optimizer: {name: SGD, arguments: {lr: 1.0}}}}"


def gated(folder: Path) -> str:
    """No process does many steps before the gate is there: the job waits for its joiners."""
    return f"spec.task.arguments.gate={folder / 'gate'}"


def test_a_joiner_trains_is_killed_comes_again_leaves_and_the_audit_passes(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports()}"
    settings = ["spec.stop.epochs=12", gated(tmp_path)]
    with a_joinable_run(tmp_path / "run", address, settings) as job:
        invited = invite(job)
        with Joiner(tmp_path / "one", invited) as killed:
            job.wait_until(has_member("replica-1"))
            job.wait_until(lambda status: _samples(status, "replica-1") > 0)
        job.wait_until(has_member("replica-1", "dead"))
        with Joiner(tmp_path / "again", invited) as late:
            assert late.wait() == ExitCode.USAGE
            assert "the token was used before" in late.printed()
        with Joiner(tmp_path / "two", invite(job)) as leaving:
            job.wait_until(lambda status: _samples(status, "replica-1") > 0)
            (tmp_path / "gate").touch()
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


@pytest.mark.nightly
def test_of_a_joiner_with_local_steps_a_kill_costs_what_it_had_not_pushed(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports()}"
    settings = [LOCAL_STEPS, "spec.stop.epochs=4", gated(tmp_path)]
    with a_joinable_run(tmp_path / "run", address, settings) as job:
        with Joiner(tmp_path / "one", invite(job)) as killed:
            job.wait_until(lambda status: _samples(status, "replica-1") > 0)
        job.wait_until(has_member("replica-1", "dead"))
        with Joiner(tmp_path / "two", invite(job)) as staying:
            job.wait_until(lambda status: _samples(status, "replica-1") > 0)
            (tmp_path / "gate").touch()
            assert job.wait() == 0, job.printed()
            assert staying.wait() == ExitCode.COMPLETE
        killed.hand_over_ledgers(job)
        staying.hand_over_ledgers(job)
        summary = job.summary()

    assert summary["epochs"] == 4
    assert summary["samplesRequeued"] > 0
    job.assert_promises_held()


def test_a_joiner_that_is_removed_ends_and_others_do_its_work(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports()}"
    settings = ["spec.stop.epochs=4", gated(tmp_path)]
    with a_joinable_run(tmp_path / "run", address, settings) as job:
        with Joiner(tmp_path / "one", invite(job)) as removed:
            job.wait_until(lambda status: _samples(status, "replica-1") > 0)
            subprocess.run(command("remove", str(job.output), "replica-1"), check=True)
            (tmp_path / "gate").touch()
            assert removed.wait() == ExitCode.FAILED
            assert "removed by the run's owner" in removed.printed()
        assert job.wait() == 0, job.printed()
        assert "what joiners push is believed" in job.printed()
        removed.hand_over_ledgers(job)
        summary = job.summary()

    assert summary["epochs"] == 4
    assert summary["samplesRepeated"] == 0
    job.assert_promises_held()


@pytest.mark.nightly
def test_a_joiner_that_starts_again_while_it_is_removed_does_not_come_in(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports()}"
    settings = ["spec.stop.epochs=4", gated(tmp_path)]
    with a_joinable_run(tmp_path / "run", address, settings) as job:
        with Joiner(tmp_path / "one", invite(job)) as removed:
            job.wait_until(lambda status: _samples(status, "replica-1") > 0)
            first = removed.replica()
            os.kill(first, signal.SIGKILL)
            while (again := removed.replica()) in {0, first}:
                time.sleep(0.01)
            # Held before it asks to join: the process has modules to import.
            os.kill(again, signal.SIGSTOP)
            subprocess.run(command("remove", str(job.output), "replica-1"), check=True)
            os.kill(again, signal.SIGCONT)
            assert removed.wait() == ExitCode.FAILED
            assert "removed by the run's owner" in removed.printed()
        (tmp_path / "gate").touch()
        assert job.wait() == 0, job.printed()

    # Of its second process there is none: it never was a member.
    (log,) = (removed.output / "ledger").iterdir()
    audit = command("audit", str(job.output))
    without = subprocess.run(audit, capture_output=True, text=True, check=False)
    assert without.returncode == ExitCode.FAILED
    assert f"without the log of replica-1 (incarnation {log.stem[-1]})" in without.stdout
    job.assert_promises_held("--ledger", str(removed.output))


def test_a_joiner_with_other_data_of_the_same_length_trains_nothing(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports()}"
    settings = ["spec.task.entrypoint=counting:Labelled", "spec.stop.epochs=4", gated(tmp_path)]
    with a_joinable_run(tmp_path / "run", address, settings) as job:
        shutil.copytree(TASKS, tmp_path / "other", ignore=shutil.ignore_patterns("__pycache__"))
        (tmp_path / "other/labels").write_bytes(bytes(512) + b"x" * 512)
        with Joiner(tmp_path / "other", invite(job)) as other:
            assert other.wait() == ExitCode.FAILED
            assert "the data is not the job's: train example" in other.printed()
        assert not list((tmp_path / "other/output/ledger").iterdir())
        with Joiner(tmp_path / "alike", invite(job)) as alike:
            job.wait_until(lambda status: _samples(status, "replica-1") > 0)
            (tmp_path / "gate").touch()
            assert job.wait() == 0, job.printed()
            assert alike.wait() == ExitCode.COMPLETE
        alike.hand_over_ledgers(job)

    job.assert_promises_held()


def test_who_is_not_good_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{free_ports()}"
    with a_joinable_run(tmp_path / "run", address, ["spec.stop.epochs=400"]) as job:
        good, short = invite(job), invite(job, "--expires", "1s")
        until = time.monotonic() + 1.0
        token = good.token
        wrong = Invited(address, token.replace(token.split(".")[2], "A" * 43))
        elsewhere = Invited(address, token[:-64] + "0" * 64)

        _assert_refused(tmp_path / "wrong", wrong, "not one of this run")
        _assert_refused(tmp_path / "elsewhere", elsewhere, "is not the run that")
        torn = Invited(address, token[:-1])
        _assert_refused(tmp_path / "torn", torn, "token: this is no token of `disttrain invite`")
        other = tmp_path / "other code"
        with Joiner(other, Invited(address, "none")) as prepared:
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


def _samples(status: dict[str, object], name: str) -> int:
    members = status["members"]
    assert isinstance(members, list)
    return max(
        (int(one.get("samples", 0)) for one in members if one["name"] == name and _lives(one)),
        default=0,
    )


def _lives(member: dict[str, object]) -> bool:
    return member["state"] == "live"


def _assert_refused(folder: Path, invited: Invited, why: str) -> None:
    with Joiner(folder, invited) as joiner:
        assert joiner.wait() == ExitCode.USAGE
        assert why in joiner.printed()
