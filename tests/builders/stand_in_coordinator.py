"""A coordinator that does nothing but listen: for tests of the launcher.

It writes every request into coordinator.requests and ends when it is told to, or as the file
`coordinator.exit` in the run folder says. `coordinator.saved` has the number of the checkpoint that
it tells of.
"""

import threading
from pathlib import Path

from disttrain.coordinator.protocol import messages, payloads
from disttrain.launch.config import LaunchConfig
from disttrain.transport.factory import open_transport
from disttrain.transport.header import EMPTY, Role, Verb
from disttrain.transport.interface import Listener, Request


def main(config: LaunchConfig) -> int:
    transport = open_transport(config.transport_config)
    listener = transport.listen(str(config.listen_address))
    (config.run_folder / f"{config.process}.threads").write_text(str(threading.active_count()))
    seen: set[tuple[bytes, int]] = set()
    while (code := _wanted_exit(config.run_folder)) is None:
        request = listener.receive(0.05)
        if request is None:
            continue
        parsed = payloads.parse_request(request.payload)
        # Clients repeat what is not answered in time.
        if (request.peer, request.header.sequence) not in seen:
            seen.add((request.peer, request.header.sequence))
            _note(config.run_folder, parsed)
        reply(listener, request, _answer(parsed, config.run_folder), transport.job)
        if isinstance(parsed, messages.Stop):
            (config.run_folder / "coordinator.exit").write_text("130")
        if isinstance(parsed, messages.Fail | messages.MemberDied) and _final(parsed):
            return 1
    return code


def reply(listener: Listener, request: Request, answer: messages.Reply, job: int) -> None:
    """Answer a request as coordinators do."""
    payload = payloads.encode_reply(answer)
    header = EMPTY._replace(
        verb=Verb.CONTROL_REPLY,
        job=job,
        role=Role.COORDINATOR,
        sequence=request.header.sequence,
        count=len(payload),
    )
    listener.reply(request, header, payload)


def _answer(request: messages.Request, folder: Path) -> messages.Reply:
    saved = folder / "coordinator.saved"
    if isinstance(request, messages.Status) and saved.exists():
        status = {"phase": "Running", "checkpoint": int(saved.read_text())}
        return messages.StatusReply(status=status)
    return messages.Acknowledged()


def _note(folder: Path, request: messages.Request) -> None:
    with (folder / "coordinator.requests").open("ab") as log:
        log.write(payloads.encode_request(request) + b"\n")


def _final(request: messages.Fail | messages.MemberDied) -> bool:
    return isinstance(request, messages.Fail) or request.final


def _wanted_exit(folder: Path) -> int | None:
    file = folder / "coordinator.exit"
    return int(file.read_text()) if file.exists() else None
