"""A job over TCP on one machine: who was given credentials is heard by those it talks to."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.jobs import a_job
from builders.transports import (
    a_config,
    a_header,
    must_be_asked,
    must_be_asked_while_sending,
    must_receive,
    opened,
)
from disttrain.job import certificates, names
from disttrain.launch import config as launch_config
from disttrain.launcher import run as runs
from disttrain.launcher.coordinator_link import ControlLink
from disttrain.launcher.run import Run
from disttrain.transport.config import TransportConfig, TransportKind
from disttrain.transport.header import Role, Verb

TALKS = [
    ("shard-0", Role.SHARD, "coordinator", Role.COORDINATOR),
    ("replica-0", Role.REPLICA, "coordinator", Role.COORDINATOR),
    ("replica-0", Role.REPLICA, "shard-0", Role.SHARD),
    ("replica", Role.REPLICA, "coordinator", Role.COORDINATOR),
]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = runs.new(
        a_job("spec.transport=tcp"), tmp_path / "run", tmp_path, runs.Opening(certificates.issue)
    )
    for name, config in made.configs.items():
        launch_config.write(made.folder.config(name), config)
    yield made
    made.close()


def told(run: Run, name: str) -> TransportConfig:
    """How a process sends and receives, as it reads it."""
    return launch_config.read(run.folder.config(name)).transport_config


@pytest.mark.parametrize(("speaker", "role", "listener", "listens"), TALKS)
def test_who_was_given_credentials_is_heard(
    run: Run, speaker: str, role: Role, listener: str, listens: Role
) -> None:
    with opened(told(run, listener)) as there, opened(told(run, speaker)) as here:
        port = there.listen("tcp://127.0.0.1:0")
        channel = here.connect(port.address, listens)
        channel.send(a_header(Verb.CONTROL_REQUEST, role=role), b"here")
        request = must_be_asked_while_sending(port, channel)
        assert (request.role, bytes(request.payload)) == (role, b"here")
        assert port.reply(request, a_header(Verb.CONTROL_REPLY, role=listens), b"yes")
        assert bytes(must_receive(channel).payload) == b"yes"


def test_the_launcher_is_heard_and_nobody_without_credentials(run: Run) -> None:
    config = launch_config.read(run.folder.config("coordinator"))
    bare = a_config(TransportKind.TCP, job_uid=config.job_uid, role=Role.LAUNCHER)
    with opened(config.transport_config) as there, opened(bare) as stranger:
        port = there.listen(config.coordinator_address)
        channel = stranger.connect(port.address)
        channel.send(a_header(Verb.CONTROL_REQUEST, role=Role.LAUNCHER), b"stop")
        assert port.receive(0.5) is None
        link = ControlLink(config, run.place.credentials[names.LAUNCHER])
        try:
            link.stop("over")
            assert must_be_asked(port).role is Role.LAUNCHER
        finally:
            link.close()
