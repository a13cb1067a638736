"""The other side of `enrolment`: a replica on this machine, of a run on another one.

It only dials out. Its key is made here, and nobody else ever has it.
"""

import select
import signal
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from pydantic import ValidationError

from disttrain.job import certificates, identity, names
from disttrain.job.certificates import Request
from disttrain.job.credentials import Credentials
from disttrain.job.names import Role
from disttrain.launch import config as launch_config
from disttrain.launch import linux, outcome
from disttrain.launch.config import LaunchConfig
from disttrain.launch.errors import NotTakenIn
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.invitation import Token
from disttrain.launch.run_folder import RunFolder
from disttrain.launcher import enrolment, interruption
from disttrain.launcher.enrolment import ANSWER, APPLICATION, Answer, Application
from disttrain.launcher.fork_messages import Ended
from disttrain.launcher.hosts import ExecHost
from disttrain.launcher.restart_policy import Exit, GiveUpReason, History, decide
from disttrain.task import code
from disttrain.transport.config import TransportKind

_PROCESS = Role.REPLICA.value
_HISTORY_NAME = names.replica_name(0)
"""Under which its restarts are counted: it has no index of its own choice."""

Say = Callable[[str], None]


def apply(host: str, port: int, token: Token, task_folder: Path, folder: Path) -> LaunchConfig:
    """What the run tells the replica that is started here. Raises NotTakenIn."""
    request = certificates.new_request()
    asked = Application(
        version=enrolment.version(),
        invitation=token.invitation,
        secret=token.secret,
        code=code.hashes(task_folder),
        request=request.text,
    )
    return _config(_ask(host, port, token, asked), request, token, task_folder, folder)


def _ask(host: str, port: int, token: Token, asked: Application) -> Answer:
    where = f"{host}:{port}"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Whom to believe stands in the token: the key itself, under whatever name.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        plain = socket.create_connection((host, port), enrolment.CONVERSATION_SECONDS)
        with plain, context.wrap_socket(plain) as stream:
            shown = ssl.DER_cert_to_PEM_cert(stream.getpeercert(binary_form=True) or b"")
            if certificates.fingerprint(shown) != token.key:
                message = (
                    f"who answers at {where} is not the run that the token is for: it ended or was "
                    "resumed since, or somebody else is there; ask for another token"
                )
                raise NotTakenIn(message)
            stream.sendall(APPLICATION.dump_json(asked) + b"\n")
            answer = ANSWER.validate_json(enrolment.read_line(stream))
    except (OSError, ValueError) as error:
        why = "it cannot be read" if isinstance(error, ValidationError) else error
        message = f"ADDRESS: no answer from {where}: {why}; is the run there, and the port open?"
        raise NotTakenIn(message) from error
    if answer.refusal or answer.job is None:
        raise NotTakenIn(answer.refusal)
    return answer


def _config(
    answer: Answer, request: Request, token: Token, task_folder: Path, folder: Path
) -> LaunchConfig:
    job = answer.job
    assert job is not None  # noqa: S101 - `_ask` has looked.
    who = identity.joiner(answer.job_uid, token.invitation)
    return LaunchConfig(
        job=job,
        job_uid=answer.job_uid,
        role=Role.REPLICA,
        index=None,
        run_folder=folder,
        task_folder=task_folder,
        coordinator_address=answer.coordinator,
        transport=TransportKind.TCP,
        threads=job.spec.replicas.threads or max(1, linux.usable_cores()),
        device=job.spec.replicas.device,
        place=who.place,
        instance=who.instance,
        tells_content=True,
        credentials=Credentials(
            certificate=answer.certificate, key=request.key, authority=answer.authority
        ),
    )


def stay(config: LaunchConfig, say: Say) -> ExitCode:
    """Run the replica until the job is over, or until Ctrl-C or SIGTERM; starts it again."""
    folder = RunFolder(config.run_folder)
    launch_config.write(folder.config(_PROCESS), config)
    history, is_leaving = History(), False
    with closing(ExecHost()) as host, interruption.caught() as interrupts:
        while True:
            began = time.monotonic()
            folder.failure(_PROCESS).unlink(missing_ok=True)
            host.start(_PROCESS, folder.config(_PROCESS), folder.log(_PROCESS))
            ended, is_leaving = _until_it_ends(host, interrupts, say)
            lived = time.monotonic() - began
            pause = _pause(config, history, ended, lived, say)
            if is_leaving or pause is None:
                return _result(ended, is_leaving=is_leaving)
            if _is_interrupted(interrupts, pause):
                return ExitCode.INTERRUPTED


def _until_it_ends(
    host: ExecHost, interrupts: interruption.Interrupts, say: Say
) -> tuple[Ended, bool]:
    """How it ended, and whether it was told to."""
    count, pid = 0, 0
    while True:
        poll = select.poll()
        for descriptor in [interrupts.descriptor, *host.descriptors()]:
            poll.register(descriptor, select.POLLIN)
        if not pid or poll.poll():
            for event in host.events():
                if isinstance(event, Ended):
                    return event, bool(count)
                pid = getattr(event, "pid", pid)
        if more := interrupts.take():
            count += more
            say("leaves the job: what it has trained is pushed first; Ctrl-C again kills")
            host.kill(pid, signal.SIGTERM if count == more else signal.SIGKILL)


def _pause(
    config: LaunchConfig, history: History, ended: Ended, lived: float, say: Say
) -> float | None:
    """Seconds before the next start; None: there is none."""
    exit_ = Exit(ended.code)
    if exit_.code == ExitCode.COMPLETE:
        say("the job is over, or takes this replica no more")
        return None
    if exit_.code == ExitCode.FINAL_ERROR:
        failure = outcome.read_failure(RunFolder(config.run_folder).failure(_PROCESS))
        say("the replica failed" if failure is None else failure.message)
        return None
    verdict = decide(config.job.spec, history, _HISTORY_NAME, exit_, lived_seconds=lived)
    if isinstance(verdict, GiveUpReason):
        say(f"the replica is not started again: {exit_} ({verdict})")
        return None
    return verdict.delay_seconds


def _result(ended: Ended, *, is_leaving: bool) -> ExitCode:
    if ended.code == ExitCode.COMPLETE:
        return ExitCode.COMPLETE
    return ExitCode.INTERRUPTED if is_leaving else ExitCode.FAILED


def _is_interrupted(interrupts: interruption.Interrupts, seconds: float) -> bool:
    return bool(select.select([interrupts.descriptor], [], [], seconds)[0])
