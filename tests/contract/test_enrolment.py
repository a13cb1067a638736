"""Where joiners are taken in, over real sockets: what strangers do there, and odd joiners."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from builders.jobs import a_job
from builders.joiners import free_ports
from disttrain.launch import invitation
from disttrain.launch.errors import NotJoinable, NotTakenIn
from disttrain.launch.invitation import Invitation, Token
from disttrain.launcher import enrolment, joining
from disttrain.launcher import run as runs
from disttrain.launcher.enrolment import Office
from disttrain.launcher.run import Run

HOST = "127.0.0.1"
SOON_SECONDS = 3.0


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "digits.py").write_text("x = 1\n")
    return folder


@pytest.fixture
def office(tasks: Path) -> Office:
    return Office(HOST, free_ports(), tasks)


@pytest.fixture
def run(office: Office, tasks: Path, tmp_path: Path) -> Iterator[Run]:
    opening = runs.Opening(office.issue, office.reach)
    made = runs.new(a_job("spec.transport=tcp"), tmp_path / "run", tasks, opening)
    with closing(made):
        yield made


def invited(run: Run, *, key: str) -> Token:
    """A token of this run, whose owner gave it when its key was `key`."""
    reach = run.place.reach
    assert reach is not None
    token = invitation.new_token(reach.key)
    kept = Invitation(
        job_uid=run.place.job_uid,
        key=key,
        role="replica",
        digest=token.digest,
        expires=time.time() + 60,
    )
    invitation.write(run.folder.invitations, token.invitation, kept)
    return token


def ask(run: Run, token: Token) -> None:
    """Raises NotTakenIn."""
    reach = run.place.reach
    assert reach is not None
    joining.apply(HOST, reach.port, token, run.place.task_folder, run.folder.path)


def connect(office: Office) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection((HOST, office.reach.port))
    return context.wrap_socket(plain)


def test_of_many_that_show_one_token_at_once_one_is_taken_in(
    office: Office, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, write, both = invited(run, key=office.reach.key), invitation.write, threading.Barrier(2)

    def write_late(folder: Path, name: str, content: Invitation) -> None:
        """Gives a second one the time to come as far as the first."""
        with suppress(threading.BrokenBarrierError):
            both.wait(0.5)
        write(folder, name, content)

    def answer(_: int) -> str:
        try:
            ask(run, token)
        except NotTakenIn as refused:
            return str(refused)
        return ""

    monkeypatch.setattr(invitation, "write", write_late)
    with office.open(run), ThreadPoolExecutor(4) as threads:
        first, *others = sorted(threads.map(answer, range(4)))
    assert not first
    assert all("used before" in other for other in others)


def test_a_token_of_before_the_run_was_resumed_is_not_good_whatever_key_it_names(
    office: Office, run: Run
) -> None:
    token = invited(run, key="ab" * 32)

    with office.open(run), pytest.raises(NotTakenIn, match="before it was resumed"):
        ask(run, token)


def test_a_second_run_at_the_same_address_is_refused_before_anything_of_it_is_made(
    office: Office, run: Run, tasks: Path, tmp_path: Path
) -> None:
    second = runs.Opening(office.issue, office.reach)
    with office.open(run), pytest.raises(NotJoinable, match="cannot be listened on"):
        runs.new(run.job, tmp_path / "second", tasks, second)

    assert not (tmp_path / "second").exists()


def test_a_job_that_nobody_can_join_is_refused_before_anything_of_it_is_made(
    office: Office, tasks: Path, tmp_path: Path
) -> None:
    opening = runs.Opening(office.issue, office.reach)
    with pytest.raises(NotJoinable, match=r"spec\.transport must be tcp"):
        runs.new(a_job(), tmp_path / "run", tasks, opening)

    assert not (tmp_path / "run").exists()


def test_a_jobs_code_is_what_its_run_began_with(office: Office, run: Run, tasks: Path) -> None:
    token = invited(run, key=office.reach.key)
    (tasks / "digits.py").write_text("x = 2\n")

    # Who joins has the edited file, which the run's own replicas do not have.
    with office.open(run), pytest.raises(NotTakenIn, match=r"digits\.py is another one"):
        ask(run, token)


def test_a_joiner_of_another_version_is_told_so_whatever_else_it_says(
    office: Office, run: Run
) -> None:
    token = invited(run, key=office.reach.key)
    said = {"version": "0.0.1", "invitation": token.invitation, "secret": token.secret, "new": 1}
    with office.open(run):
        answer = answer_to(office, said)
        stranger = answer_to(office, said | {"secret": "A" * 43})
        ask(run, token)

    # Nothing else, so that another version can read it.
    assert list(answer) == ["refusal"]
    assert "and 0.0.1 asks to join: install disttrain==" in answer["refusal"]
    assert "not one of this run" in stranger["refusal"]


def answer_to(office: Office, said: dict[str, object]) -> dict[str, str]:
    with connect(office) as stream:
        stream.sendall(json.dumps(said).encode() + b"\n")
        found: dict[str, str] = json.loads(enrolment.read_line(stream))
    return found


def test_strangers_cannot_fill_the_log(
    office: Office, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    assert run.place.reach is not None
    strange = invitation.new_token(run.place.reach.key)
    with office.open(run):
        for _ in range(5):
            with pytest.raises(NotTakenIn, match="not one of this run"):
                ask(run, strange)

    assert caplog.messages.count("a joiner is refused") == 1


def test_a_stranger_who_says_nothing_does_not_delay_the_end_of_a_run(
    office: Office, run: Run
) -> None:
    with office.open(run):
        silent = connect(office)
        began = time.monotonic()
    with silent:
        assert time.monotonic() - began < SOON_SECONDS


def test_a_question_that_comes_byte_by_byte_is_cut(
    office: Office, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enrolment, "CONVERSATION_SECONDS", 0.5)
    with office.open(run), connect(office) as slow:
        slow.settimeout(0.05)
        began = time.monotonic()
        while not _is_cut(slow):
            assert time.monotonic() - began < SOON_SECONDS


def _is_cut(stream: ssl.SSLSocket) -> bool:
    try:
        stream.sendall(b" ")
        return stream.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True
