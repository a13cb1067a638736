"""Processes started by environment alone, as pods are; nobody watches them but the test."""

import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch import Tensor

from builders import issuing
from builders.at_night import others_at_night
from builders.launches import wait_until
from builders.pod_processes import ALL, UID, PodJob
from builders.runs import has_restarted
from builders.scraping import asked, is_up
from builders.strangers import a_message, a_peer, answer
from disttrain.coordinator.protocol import commands, messages, payloads
from disttrain.coordinator.protocol.commands import NumberedCommand
from disttrain.job.pod_layout import HEALTH_PATH, Variable
from disttrain.launch.process_one import STOPPED
from disttrain.launcher.run import reserve_port
from disttrain.transport.errors import TransportTimeout
from disttrain.transport.header import Reason, Role, Verb

pytestmark = pytest.mark.landing

SAMPLES = 1024
EPOCHS = 2
MEMBERS = ALL[1:]
SHARDS = ("shard-0", "shard-1")
REPLICAS = ("replica-a", "replica-b")


def slow(folder: Path) -> dict[str, Any]:
    """Of a job that lasts until `complete_at_once`."""
    return {"spec.task.arguments": {"step_seconds": 0.25, "hurry": str(folder / "hurry")}}


def complete_at_once(job: PodJob) -> None:
    (job.folder / "hurry").touch()
    job.complete()


def begun(status: dict[str, Any]) -> bool:
    return bool(status.get("samples", 0) >= SAMPLES // 4)


def trained(job: PodJob) -> dict[str, Tensor]:
    return load_file(job.output / "model.safetensors")


def assert_every_sample_was_applied(job: PodJob) -> None:
    """Nothing lost, and exactly as much repeated as the summary says."""
    counts, summary = trained(job)["counts"], job.summary()
    assert int(counts.min()) >= EPOCHS, f"samples were skipped: {counts}"
    repeated = int(counts.sum()) - EPOCHS * SAMPLES
    most = summary["samplesRepeated"]
    assert most - summary["samplesPartiallyApplied"] <= repeated <= most


def assert_nothing_was_lost_or_repeated(job: PodJob) -> None:
    model, summary = trained(job), job.summary()
    assert (summary["samplesRepeated"], summary["updatesLost"]) == (0, 0), summary
    assert model["counts"].eq(EPOCHS).all(), model["counts"]


def test_processes_started_in_any_order_train_to_the_end(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with PodJob(tmp_path, {"spec.task.arguments": {"gate": str(gate)}}) as job:
        announced = job.announce("shard-0")
        job.start("replica-a", "shard-1", "shard-0", "replica-b")
        job.start("coordinator")
        job.wait_until(lambda status: status["liveReplicas"] == 2)
        gate.touch()
        job.complete()
        assert job.member("shard-0")["address"] == announced

        outcome = job.outcome()
        assert outcome["samples"] == EPOCHS * SAMPLES
        assert outcome["reason"] == "Epochs"
        assert outcome["measures"]["counted"] == EPOCHS
        assert_nothing_was_lost_or_repeated(job)
        job.assert_promises_held()

        assert all(job.is_running(name) for name in MEMBERS)
        job.tell_to_end(*MEMBERS)
        assert [job.wait(name) for name in MEMBERS] == [0, 0, 0, 0]
        assert not (job.output / "logs").exists()
        lines = (job.log("replica-a") + job.log("replica-b")).splitlines()
        assert {"replica-0", "replica-1"} <= {line.split()[2] for line in lines}


def test_a_killed_replica_takes_its_place_again_at_once(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with PodJob(tmp_path, {"spec.task.arguments": {"gate": str(gate)}}) as job:
        job.start(*ALL)
        # One replica alone may come so far; one that is killed before it joined has no second
        # incarnation.
        job.wait_until(lambda status: begun(status) and status["liveReplicas"] == 2)
        job.restart("replica-a")
        job.wait_until(has_restarted("replica"))
        gate.touch()
        job.complete()

        summary = job.summary()
        assert summary["restarts"] == {"coordinator": 0, "shard": 0, "replica": 1}
        names = {each["name"] for each in job.status()["members"]}
        assert names == {"shard-0", "shard-1", "replica-0", "replica-1"}
        assert_every_sample_was_applied(job)
        job.assert_promises_held()


def test_a_killed_replica_stays_away_as_long_as_the_manifest_says_and_lives(
    tmp_path: Path,
) -> None:
    seconds, gate = 25.0, tmp_path / "gate"
    manifest = {
        "spec.task.arguments": {"gate": str(gate)},
        "spec.failurePolicy": {"restartBackoff": {"initialSeconds": seconds, "maxSeconds": 60}},
    }
    with reserve_port() as port, PodJob(tmp_path, manifest) as job:
        job.changed["replica-a"] = {Variable.METRICS_ADDRESS: f"127.0.0.1:{port}"}
        job.start(*ALL)
        job.wait_until(lambda status: begun(status) and status["liveReplicas"] == 2)
        killed = time.monotonic()
        job.restart("replica-a")
        process = job.processes["replica-a"].pid
        job.wait_until(lambda _: "comes again later" in job.log("replica-a"))
        assert is_up(f"127.0.0.1:{port}", HEALTH_PATH), "or a kubelet would end it"
        job.wait_until(has_restarted("replica"))
        assert time.monotonic() - killed > seconds - 5.0, "counted from its last heartbeat"
        assert job.processes["replica-a"].pid == process
        gate.touch()
        job.complete()
        assert job.summary()["restarts"]["replica"] == 1
        job.assert_promises_held()


def test_a_killed_shard_comes_back_and_no_replica_ends(tmp_path: Path) -> None:
    with PodJob(tmp_path, slow(tmp_path)) as job:
        job.start(*ALL)
        job.wait_until(lambda status: begun(status) and status["checkpoints"] >= 1)
        job.restart("shard-1")
        job.wait_until(has_restarted("shard"))
        complete_at_once(job)

        assert job.summary()["restarts"] == {"coordinator": 0, "shard": 1, "replica": 0}
        assert all(job.is_running(name) for name in MEMBERS)
        job.assert_promises_held()


def test_a_killed_coordinator_goes_on_from_its_journal(tmp_path: Path) -> None:
    with PodJob(tmp_path, slow(tmp_path)) as job:
        job.start(*ALL)
        job.wait_until(begun)
        job.restart("coordinator")
        job.wait_until(has_restarted("coordinator"))
        complete_at_once(job)

        summary = job.summary()
        assert summary["restarts"] == {"coordinator": 1, "shard": 0, "replica": 0}
        assert summary["updatesLost"] == 0
        assert_every_sample_was_applied(job)
        job.assert_promises_held()


def test_a_journal_of_another_job_ends_the_job(tmp_path: Path) -> None:
    with PodJob(tmp_path, slow(tmp_path)) as job:
        job.start(*ALL)
        job.wait_until(begun)
        job.tell_to_end("coordinator")
        assert job.wait("coordinator") == STOPPED
        job.set("metadata.uid", "another")
        job.start("coordinator")
        assert job.wait("coordinator") == 0
        assert (job.outcome()["phase"], job.outcome()["reason"]) == ("Failed", "WrongJournal")


@pytest.mark.parametrize(
    "first", others_at_night(("coordinator",), ()), ids=["coordinator first", "at once"]
)
def test_a_job_that_is_suspended_goes_on_where_it_was(
    tmp_path: Path, first: tuple[str, ...]
) -> None:
    with PodJob(tmp_path, slow(tmp_path) | {"spec.checkpoint.everySeconds": 1000}) as job:
        job.start(*ALL)
        job.wait_until(begun)
        job.tell_to_end(*first)
        for name in first:
            assert job.wait(name) == STOPPED
        job.tell_to_end(*(name for name in ALL if name not in first))
        assert [job.wait(name) for name in ALL] == [STOPPED, 0, 0, 0, 0]
        assert job.outcome()["phase"] == "Stopped"
        assert not (job.output / "summary.json").exists()

        job.start(*ALL)
        complete_at_once(job)
        assert_nothing_was_lost_or_repeated(job)
        assert trained(job)["first_updates"].eq(EPOCHS * SAMPLES / 8).all()
        job.assert_promises_held()


def test_a_shard_that_is_told_to_end_loses_nothing(tmp_path: Path) -> None:
    with PodJob(tmp_path, slow(tmp_path) | {"spec.checkpoint.everySeconds": 1000}) as job:
        job.start(*ALL)
        job.wait_until(begun)
        job.tell_to_end("shard-0")
        assert job.wait("shard-0") == 0
        assert job.is_running("coordinator")
        assert "saved version=" in job.log("shard-0")
        job.start("shard-0")
        complete_at_once(job)

        assert_nothing_was_lost_or_repeated(job)
        assert trained(job)["first_updates"].eq(EPOCHS * SAMPLES / 8).all()
        job.assert_promises_held()


@pytest.mark.parametrize(
    ("name", "code"), [("coordinator", STOPPED), ("shard-0", 0), ("replica-a", 0)]
)
def test_who_is_told_to_end_before_its_imports_are_done_ends(
    tmp_path: Path, name: str, code: int
) -> None:
    imports, first = tmp_path / "imports", tmp_path / "first"
    first.mkdir()
    # Between two bytecodes a signal is always heard; one that comes just before a call that blocks
    # would be heard after it alone.
    (first / "pydantic.py").write_text(f"open({str(imports)!r}, 'w').close()\nwhile True: pass\n")
    with PodJob(tmp_path) as job:
        job.changed[name] = {"PYTHONPATH": str(first)}
        job.before[name] = ()
        job.start(name)
        wait_until(imports.exists, f"{name} imports")
        job.tell_to_end(name)
        assert job.wait(name) == code


def test_replicas_come_and_go_while_the_job_trains(tmp_path: Path) -> None:
    with PodJob(tmp_path, slow(tmp_path)) as job:
        job.start("coordinator", *SHARDS, "replica-a", "replica-b", "replica-c")
        job.wait_until(lambda status: begun(status) and status["liveReplicas"] == 3)
        job.tell_to_end("replica-a", "replica-c")
        assert [job.wait("replica-a"), job.wait("replica-c")] == [0, 0]
        job.wait_until(lambda status: status["liveReplicas"] == 1, timeout=15)
        complete_at_once(job)

        assert_nothing_was_lost_or_repeated(job)
        assert job.summary()["restarts"]["replica"] == 0
        job.assert_promises_held()


def test_a_task_that_cannot_be_imported_fails_the_job(tmp_path: Path) -> None:
    with PodJob(tmp_path, {"spec.task.entrypoint": "broken_import:Task"}) as job:
        job.start("coordinator", "shard-0", "replica-a")
        assert job.wait("coordinator") == 0
        outcome = job.outcome()
        assert (outcome["phase"], outcome["reason"]) == ("Failed", "TaskError")
        assert "a_module_that_nobody_has" in outcome["message"]
        assert "counting-replica-a" in outcome["message"]
        words = job.termination_log("replica-a").read_text()
        assert "broken_import.py" in words
        assert "No module named 'a_module_that_nobody_has'" in words
        assert job.is_running("replica-a")
        job.tell_to_end("replica-a")
        assert job.wait("replica-a") == 0


def test_a_task_that_fails_while_it_trains_fails_the_job(tmp_path: Path) -> None:
    arguments = {"fault": "gradient raises"}
    task = {"spec.task.entrypoint": "faulty:Faulty", "spec.task.arguments": arguments}
    with PodJob(tmp_path, task) as job:
        job.start(*ALL)
        assert job.wait("coordinator") == 0
        assert (job.outcome()["phase"], job.outcome()["reason"]) == ("Failed", "TaskError")
        job.tell_to_end(*MEMBERS)
        assert [job.wait(name) for name in MEMBERS] == [0, 0, 0, 0]


def is_ready(address: str) -> bool:
    return asked(address, "/ready", seconds=5.0) == (200, "ready\n")


def test_processes_say_whether_they_live_and_are_ready(tmp_path: Path) -> None:
    with PodJob(tmp_path, slow(tmp_path)) as job:
        job.start(*ALL)
        status = job.wait_until(begun)
        addresses = [each["metricsAddress"] for each in (status, *status["members"])]
        for address in addresses:
            # As long as a kubelet would wait.
            assert asked(address, "/healthz", seconds=5.0) == (200, "alive\n")
            # A replica is ready a moment after the status tells of it.
            wait_until(partial(is_ready, address), f"{address} is ready")
            assert "disttrain_" in asked(address, "/metrics").body


def test_under_tls_nobody_else_is_heard_and_a_role_may_only_do_its_own(tmp_path: Path) -> None:
    issued, gate = issuing.by_role(UID), tmp_path / "gate"
    arguments = {"spec.task.arguments": {"gate": str(gate)}}
    with PodJob(tmp_path, arguments, credentials=issued) as job:
        job.start(*ALL)
        status = job.wait_until(begun)
        shard = next(each["address"] for each in status["members"] if each["name"] == "shard-0")
        ordered = payloads.encode_command(
            NumberedCommand(id=9_999, order=commands.Checkpoint(number=99, folder=str(tmp_path)))
        )
        stop = payloads.encode_request(messages.Stop(reason="by a replica", at_once=True))
        coordinator = job.coordinator_address
        with a_peer(UID, issued["replica"]) as peer:
            command = a_message(Verb.CONTROL_COMMAND, Role.REPLICA, ordered)
            assert answer(peer, shard, Role.SHARD, command).header.reason == Reason.NOT_ALLOWED
            command = a_message(Verb.CONTROL_COMMAND, Role.COORDINATOR, ordered)
            refusal = answer(peer, shard, Role.SHARD, command)
            assert b"REPLICA speaks as COORDINATOR" in bytes(refusal.payload)
            refusal = answer(
                peer,
                coordinator,
                Role.COORDINATOR,
                a_message(Verb.CONTROL_REQUEST, Role.REPLICA, stop),
            )
            assert b"NotAllowed" in bytes(refusal.payload)
        with a_peer(UID, None) as stranger:
            channel = stranger.connect(coordinator)
            # Its connection is closed before or after the message could leave.
            with suppress(TransportTimeout):
                channel.send(*a_message(Verb.CONTROL_REQUEST, Role.LAUNCHER, stop))
            assert channel.receive(1.0) is None
            channel.close()
        gate.touch()
        job.complete()
        assert not list(tmp_path.glob("*.safetensors"))
        assert_nothing_was_lost_or_repeated(job)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"DISTTRAIN_ROLE": "worker"}, "DISTTRAIN_ROLE must be one of"),
        ({"DISTTRAIN_INDEX": ""}, "DISTTRAIN_INDEX must be the index of the shard"),
        ({"DISTTRAIN_KEYS_FILE": "/nowhere"}, "/nowhere cannot be read"),
        ({"DISTTRAIN_KEYS_FILE": "/etc/hostname"}, "the credentials file is not valid at"),
        ({"DISTTRAIN_KEYS_FILE": ""}, "DISTTRAIN_KEYS_FILE is missing: with spec.transport.encr"),
    ],
)
def test_a_wrong_environment_is_named(tmp_path: Path, changes: dict[str, str], words: str) -> None:
    with PodJob(tmp_path, credentials=issuing.by_role(UID)) as job:
        job.changed["shard-0"] = changes
        job.start("shard-0")
        assert job.wait("shard-0") == 2
        assert words in job.log("shard-0")
