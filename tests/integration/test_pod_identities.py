"""Pods that get certificates of their own: they are renewed, and speak for nobody else."""

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from builders.pod_processes import ALL, ALL_OF_TWO, OF_TWO, PodJob
from builders.runs import has_restarted
from builders.scraping import addresses, samples, scraped
from builders.signing_port import KEY, SigningPort
from builders.strangers import a_message, a_peer, answer
from builders.transports import a_chunk_header
from disttrain.coordinator.protocol import messages, payloads
from disttrain.coordinator.protocol.fields import NO_PROGRESS, MemberId
from disttrain.job.credentials import Credentials, encode
from disttrain.launch.exit_code import ExitCode
from disttrain.parameter_server.messages import Side
from disttrain.transport.errors import Refusal
from disttrain.transport.header import Reason, Role, Verb

pytestmark = pytest.mark.landing

SAMPLES = 1024
EPOCHS = 2
NOTHING: Mapping[str, Any] = {}


def pods(port: SigningPort) -> dict[str, dict[str, Any]]:
    """By the names that `PodJob` gives processes."""
    found = {f"shard-{index}": pod for index, pod in enumerate(port.pods("shard"))}
    replicas = port.pods("replica")
    if len(replicas) == 2:
        found |= {f"replica-{name}": pod for name, pod in zip("ab", replicas, strict=True)}
    else:
        prefix = f"{KEY.name}-"
        found |= {pod["metadata"]["name"].removeprefix(prefix): pod for pod in replicas}
    return found | {"coordinator": port.pods("coordinator")[0]}


def a_job(
    folder: Path, port: SigningPort, arguments: dict[str, Any], more: Mapping[str, Any] = NOTHING
) -> PodJob:
    """Its processes are told what the operator would tell their pods."""
    changed = {"metadata.uid": port.uid, "spec.task.arguments": arguments, **more}
    # None is given to it: each process asks.
    job = PodJob(folder, changed, credentials={})
    trust = folder / "trust.json"
    trust.write_bytes(encode(port.trust))
    for name, pod in pods(port).items():
        job.changed[name] = {
            "DISTTRAIN_KEYS_FILE": str(trust),
            "DISTTRAIN_TOKEN_FILE": str(port.applicant(pod, folder).token),
            "POD_UID": pod["metadata"]["uid"],
            "POD_NAME": pod["metadata"]["name"],
        }
    return job


def assert_each_sample_was_applied_once(job: PodJob) -> None:
    summary = job.summary()
    assert (summary["samples"], summary["samplesRepeated"]) == (EPOCHS * SAMPLES, 0), summary
    assert summary["updatesLost"] == 0, summary


def test_a_job_trains_on_through_certificates_of_seconds(tmp_path: Path) -> None:
    port, gate = SigningPort(lifetime=timedelta(seconds=9)), tmp_path / "gate"
    with port.serving(), a_job(tmp_path, port, {"gate": str(gate), "step_seconds": 0.02}) as job:
        job.start(*ALL)
        job.wait_until(lambda status: status["liveReplicas"] == 2)
        # The first ones have expired long ago when all have been renewed twice.
        job.wait_until(
            lambda _: all(job.log(name).count("certificate renewed") >= 2 for name in ALL)
        )
        assert all(job.is_running(name) for name in ALL)
        # Connections that are made now show the new ones, to those who show new ones, too.
        job.restart("shard-1")
        job.wait_until(has_restarted("shard"))
        gate.touch()
        job.complete()
        assert job.summary()["restarts"] == {"coordinator": 0, "shard": 1, "replica": 0}
        job.assert_promises_held()


def test_partitions_speak_with_shards_in_their_own_names(tmp_path: Path) -> None:
    """Also after one was killed, and its replica has other processes."""
    port, gate = SigningPort(partitions=2), tmp_path / "gate"
    arguments = {"gate": str(gate), "step_seconds": 0.02}
    with port.serving(), a_job(tmp_path, port, arguments, OF_TWO) as job:
        job.start(*ALL_OF_TWO)
        job.wait_until(begun)
        job.restart("replica-0-1")
        assert job.wait("replica-0-0") == ExitCode.RESTART
        job.start("replica-0-0")
        job.wait_until(has_restarted("replica"))
        gate.touch()
        job.complete()
        assert job.summary()["restarts"] == {"coordinator": 0, "shard": 0, "replica": 1}
        assert not any("does not speak for" in job.log(name) for name in ALL_OF_TWO)
        job.assert_promises_held()


def begun(status: dict[str, Any]) -> bool:
    return bool(status["liveReplicas"] == 2 and status.get("samples", 0) >= 64)


def member_of(job: PodJob, pod: str) -> MemberId:
    """Who a pod's process has joined as."""
    words = job.log(pod).split()
    name = next(word for word in words if word in {"replica-0", "replica-1"})
    told = job.member(name)
    return MemberId(role=Role.REPLICA, index=int(name[-1]), incarnation=told["incarnation"])


def impostors(status: dict[str, Any], name: str) -> float:
    found = samples(scraped(addresses(status)[name]), "disttrain_messages_dropped_total")
    return sum(each.value for each in found if each.labels["reason"] == Refusal.IMPOSTOR)


def requests_as(member: MemberId, place: str, own: str) -> list[messages.Request]:
    """In another's name, and in its own from the place of another."""
    return [
        messages.RequestWork(member=member, held=0, last_lease=0, progress=NO_PROGRESS),
        messages.Heartbeat(member=member),
        messages.Leave(member=member, reason="it is told so"),
        messages.Join(role=Role.REPLICA, index=None, instance="x.1", place=place, pid=1),
        messages.Join(role=Role.REPLICA, index=None, instance=own, place=place, pid=1),
    ]


def test_one_replicas_certificate_is_no_others(tmp_path: Path) -> None:
    """The second replica pushes, asks, leaves and joins as the first: nothing comes of it."""
    port, gate = SigningPort(), tmp_path / "gate"
    with port.serving(), a_job(tmp_path, port, {"gate": str(gate), "step_seconds": 0.02}) as job:
        job.start(*ALL)
        status = job.wait_until(begun)
        first, second = (member_of(job, pod) for pod in ("replica-a", "replica-b"))
        assert first.index != second.index
        shard = next(each["address"] for each in status["members"] if each["name"] == "shard-0")
        shard_incarnation = job.member("shard-0")["incarnation"]
        own = f"{pods(port)['replica-b']['metadata']['uid']}.attack"
        theirs = port.applicant(pods(port)["replica-b"], tmp_path, own).ask()
        _attack_shard(port.uid, theirs, shard, first, shard_incarnation)
        place = pods(port)["replica-a"]["metadata"]["name"]
        for request in requests_as(first, place, own):
            _attack_coordinator(port.uid, theirs, job.coordinator_address, request)

        job.wait_until(lambda status: impostors(status, "shard-0") >= 2)
        job.wait_until(lambda status: impostors(status, "coordinator") >= 5)
        assert f"does not speak for {first.name}" in job.log("shard-0")
        assert f"does not speak for {first.name}" in job.log("coordinator")
        gate.touch()
        job.complete()
        assert job.summary()["restarts"] == {"coordinator": 0, "shard": 0, "replica": 0}
        assert_each_sample_was_applied_once(job)
        job.assert_promises_held()


def _attack_shard(
    uid: str, shown: Credentials, shard: str, victim: MemberId, shard_incarnation: int
) -> None:
    payload = os.urandom(64)
    push = a_chunk_header(
        Verb.PUSH,
        16,
        sender=victim.index,
        incarnation=victim.incarnation,
        receiver_incarnation=shard_incarnation,
        sequence=10_000,
    )
    hello = push._replace(verb=Verb.HELLO, count=Side.PUSH, first=10_000)
    with a_peer(uid, shown) as peer:
        for message in ((hello, b""), (push, payload)):
            refusal = answer(peer, shard, Role.SHARD, message)
            assert refusal.header.verb == Verb.REFUSED
            assert refusal.header.reason == Reason.NOT_ALLOWED


def _attack_coordinator(
    uid: str, shown: Credentials, coordinator: str, request: messages.Request
) -> None:
    content = payloads.encode_request(request)
    with a_peer(uid, shown) as peer:
        header, payload = a_message(Verb.CONTROL_REQUEST, Role.REPLICA, content)
        # As if it had heard of a later coordinator, of which this one would end.
        header = header._replace(receiver_incarnation=1000)
        reply = answer(peer, coordinator, Role.COORDINATOR, (header, payload))
        assert b"NotAllowed" in bytes(reply.payload), (request.kind, bytes(reply.payload))
