"""Takes joiners in: signs a replica's certificate for whoever shows a token of the run.

A joiner is told who signs, what the job is and where its coordinator listens, and nothing else.
What it says is refused before its token counts as used: it can try again with the right code.
"""

import importlib.metadata
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from disttrain.errors import DistTrainError
from disttrain.job import certificate_chain, certificates, identity
from disttrain.job.certificates import LIFETIME_OF_A_JOB
from disttrain.job.credentials import Credentials
from disttrain.job.identity import Identity
from disttrain.job.spec import DistTrainJob
from disttrain.launch import invitation
from disttrain.launch.run_folder import Reach
from disttrain.launcher.run import Run
from disttrain.task import code
from disttrain.telemetry import logs
from disttrain.transport import addresses

LOG = logs.get(__name__)

CONVERSATION_SECONDS = 10.0
"""For a handshake, and for a question."""
MOST_BYTES = 1 << 20
"""Of a question, and of an answer."""
_MOST_AT_ONCE = 8
_COMPLAINT_SECONDS = 5.0
"""Between two lines of the log about joiners that are refused: whoever reaches the port is one."""
_WORDS = 300
"""Of what they said, in such a line."""
_LOOK_SECONDS = 0.25
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="ignore"))
class Introduction:
    """What a joiner of any version says of itself, whatever else it says."""

    version: str
    """Of DistTrain."""
    invitation: str
    secret: str


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Application(Introduction):
    """What a joiner asks with."""

    code: dict[str, str]
    """Of its task folder: see `task.code.hashes`."""
    request: str
    """For a certificate: its key stays with the joiner."""


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Answer:
    """What a joiner is told."""

    refusal: str = ""
    """Why it is not taken in; then nothing else is told."""
    job: DistTrainJob | None = None
    job_uid: str = ""
    coordinator: str = ""
    """Where it listens."""
    certificate: str = ""
    authority: str = ""
    """The certificate of the authority of all processes."""


_INTRODUCTION = TypeAdapter(Introduction)
APPLICATION = TypeAdapter(Application)
ANSWER = TypeAdapter(Answer)


def version() -> str:
    return importlib.metadata.version("disttrain")


class Office:
    """One run's authority, and the endpoint by which it takes joiners in."""

    def __init__(self, host: str, port: int, task_folder: Path) -> None:
        """Raises CodeError for a folder that is no task's."""
        # As the run begins with it: what is edited later, its own replicas do not run.
        self._code = code.hashes(task_folder)
        self._authority = certificates.new_authority()
        self._shown = self._authority.issue_server(host, LIFETIME_OF_A_JOB)
        key = certificates.fingerprint(self._shown.certificate)
        self.reach = Reach(host=host, port=port, key=key)
        self._taking = threading.Lock()
        self._refused, self._next_complaint = 0, 0.0

    def issue(self, identities: Mapping[str, Identity]) -> Mapping[str, Credentials]:
        """As `certificates.issue`, by an authority that goes on signing."""
        return {name: self._authority.issue(one) for name, one in identities.items()}

    @contextmanager
    def open(self, run: Run) -> Iterator[None]:
        """Take joiners in meanwhile, in threads of this process. Raises AddressRefused."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        certificate_chain.load(context, self._shown.certificate, self._shown.key)
        closing = threading.Event()
        with addresses.listen(addresses.parse(self.reach.address)) as listening:
            listening.settimeout(_LOOK_SECONDS)
            arguments = (listening, context, run, closing)
            thread = threading.Thread(target=self._accept, args=arguments, daemon=True)
            thread.start()
            try:
                yield
            finally:
                closing.set()
                thread.join()

    def _accept(
        self,
        listening: socket.socket,
        context: ssl.SSLContext,
        run: Run,
        closing: threading.Event,
    ) -> None:
        free = threading.Semaphore(_MOST_AT_ONCE)

        def answer(connected: socket.socket) -> None:
            try:
                self._converse(connected, context, run)
            finally:
                free.release()

        while not closing.is_set():
            try:
                connected, _ = listening.accept()
            except TimeoutError:
                continue
            except OSError:
                # As for want of descriptors: asked again at once, it would say the same.
                closing.wait(_LOOK_SECONDS)
                continue
            if free.acquire(blocking=False):
                # Nobody waits for these threads: a stranger who says nothing delays no run's end.
                threading.Thread(target=answer, args=(connected,), daemon=True).start()
            else:
                connected.close()

    def _converse(self, connected: socket.socket, context: ssl.SSLContext, run: Run) -> None:
        connected.settimeout(CONVERSATION_SECONDS)
        # Whoever breaks off, or speaks no TLS, has no answer coming.
        with connected, suppress(OSError), context.wrap_socket(connected, server_side=True) as it:
            answer = self._answer(read_line(it), run)
            # A joiner of any version can read why not: nothing else is in such an answer.
            told = ANSWER.dump_json(answer, by_alias=True, exclude_defaults=bool(answer.refusal))
            it.sendall(told + b"\n")

    def _answer(self, said: bytes, run: Run) -> Answer:
        try:
            # One after the other: of two with the same token one is late.
            with self._taking:
                return self._take_in(_INTRODUCTION.validate_json(said), said, run)
        except ValidationError:
            return Answer(refusal="this is no application of `disttrain join` of this version")
        except (DistTrainError, OSError, ValueError) as error:
            LOG.warning("a joiner was not taken in", reason=error)
            return Answer(refusal=f"the run could not take this joiner in: {error}")

    def _take_in(self, who: Introduction, said: bytes, run: Run) -> Answer:
        folder, uid = run.folder.invitations, run.place.job_uid
        found = invitation.read(folder, who.invitation) if who.invitation.isalnum() else None
        why = invitation.refusal(
            found, who.secret, job_uid=uid, key=self.reach.key, now=time.time()
        )
        # Whose token is not good learns nothing of version and code. What another version says
        # beside them may be anything.
        why = why or _other_version(who)
        asked = None if why else APPLICATION.validate_json(said)
        if asked is not None:
            why = _other_code(asked, self._code)
        if why or found is None or asked is None:
            self._complain(who, why)
            return Answer(refusal=why)
        joiner = identity.joiner(uid, who.invitation)
        certificate = self._authority.sign(asked.request, joiner, LIFETIME_OF_A_JOB)
        invitation.write(folder, who.invitation, replace(found, is_used=True))
        LOG.info("a joiner is taken in", invitation=who.invitation)
        return Answer(
            job=run.job,
            job_uid=uid,
            coordinator=self.reach.coordinator,
            certificate=certificate,
            authority=self._authority.certificate,
        )

    def _complain(self, asked: Introduction, why: str) -> None:
        self._refused += 1
        now = time.monotonic()
        if now >= self._next_complaint:
            self._next_complaint = now + _COMPLAINT_SECONDS
            who, so_far = asked.invitation[:_WORDS], self._refused
            LOG.warning("a joiner is refused", invitation=who, reason=why[:_WORDS], so_far=so_far)


def _other_version(asked: Introduction) -> str:
    """Why a joiner of another version may not join; empty: it has the same."""
    if asked.version == version():
        return ""
    return (
        f"this run is of DistTrain {version()}, and {asked.version:.40} asks to join: "
        f"install disttrain=={version()}"
    )


def _other_code(asked: Application, ours: Mapping[str, str]) -> str:
    """What of a joiner's code is not the run's; empty: nothing."""
    if other := code.first_difference(ours, asked.code):
        return f"the task's code is not the job's: {other}; copy the job's task folder"
    return ""


def read_line(stream: ssl.SSLSocket) -> bytes:
    """What comes before the end of a line. Raises OSError, also for what is too long or late."""
    end = time.monotonic() + CONVERSATION_SECONDS
    found = bytearray()
    while not found.endswith(b"\n"):
        stream.settimeout(max(0.001, end - time.monotonic()))
        more = stream.recv(1 << 16)
        if not more or len(found) + len(more) > MOST_BYTES:
            message = "no whole line has come"
            raise OSError(message)
        found += more
    return bytes(found)
