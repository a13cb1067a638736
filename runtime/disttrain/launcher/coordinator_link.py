"""What the launcher and the coordinator tell each other.

The launcher waits for no answer: requests are repeated for it.
"""

import time
from concurrent.futures import Future
from dataclasses import replace

from pydantic import ValidationError

from disttrain.coordinator.phases import reason_of
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.client import CoordinatorClient
from disttrain.job import defaults, names
from disttrain.job.credentials import Credentials
from disttrain.job.run_status import RunStatus
from disttrain.launch.config import LaunchConfig
from disttrain.launcher.fork_messages import Ended
from disttrain.launcher.restart_policy import Exit
from disttrain.launcher.run import Run
from disttrain.telemetry import logs
from disttrain.transport.factory import open_transport
from disttrain.transport.header import Role

LOG = logs.get(__name__)

_ASK_SECONDS = 1.0
"""Between an answer about the members and the next question, at most."""
_QUESTIONS_PER_PATIENCE = 4
_LONGEST_ERROR = 500


class ControlLink:
    """The link over the job's own transport."""

    def __init__(self, config: LaunchConfig, credentials: Credentials | None) -> None:
        """`config` is the coordinator's, `credentials` are the launcher's."""
        self._transport = open_transport(
            replace(config.transport_config, role=Role.LAUNCHER, credentials=credentials)
        )
        address = config.coordinator_address
        self._client = CoordinatorClient(lambda: self._transport.connect(address), Role.LAUNCHER)
        patience = defaults.coordinator_patience_seconds(config.job.spec)
        self._pause_seconds = min(_ASK_SECONDS, patience / _QUESTIONS_PER_PATIENCE)
        self._asked: Future[messages.Reply] | None = None
        self._ask_at = 0.0
        self._has_answered = False
        self._latest = LatestStatus()

    def died(self, ended: Ended, log_tail: str, *, final: bool = False) -> None:
        name = names.parse(ended.name)
        self._client.request(
            messages.MemberDied(
                role=Role[name.role.name],
                index=name.index,
                partition=name.partition or 0,
                pid=ended.pid,
                exit_code=ended.code,
                reason=str(Exit(ended.code)),
                log_tail=log_tail,
                final=final,
            )
        )

    def fail(self, message: str, error_kind: str) -> None:
        reason = reason_of(error_kind)
        self._client.request(messages.Fail(reason=reason, message=message))

    def stop(self, reason: str) -> None:
        self._client.request(messages.Stop(reason=reason))

    def heard(self) -> RunStatus | None:
        now = time.monotonic()
        if self._asked is None and now >= self._ask_at:
            self._asked = self._client.request(messages.Status())
        if self._asked is None or not self._asked.done():
            return None
        reply, self._asked = self._asked.result(), None
        self._ask_at = now + self._pause_seconds
        if not self._has_answered:
            LOG.info("the coordinator answers")
            self._has_answered = True
        return self._latest.take(reply)

    def close(self) -> None:
        self._client.close()
        self._transport.close()


def open_link(run: Run) -> ControlLink:
    return ControlLink(run.configs[names.COORDINATOR], run.place.credentials.get(names.LAUNCHER))


class LatestStatus:
    """What the coordinator said last that could be read."""

    def __init__(self) -> None:
        self._found = RunStatus(phase="")
        self._has_complained = False

    def take(self, reply: messages.Reply) -> RunStatus:
        """After one more answer. One that cannot be read changes nothing, and ends no run."""
        if not isinstance(reply, messages.StatusReply):
            return self._found
        try:
            self._found = RunStatus.model_validate(reply.status)
        except ValidationError as error:
            if not self._has_complained:
                why = str(error)[:_LONGEST_ERROR]
                LOG.warning("the coordinator's status cannot be read", error=why)
            self._has_complained = True
        return self._found
