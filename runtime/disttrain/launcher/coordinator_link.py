"""What the launcher tells the coordinator. It waits for no answer: requests are repeated for it."""

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.client import CoordinatorClient
from disttrain.job import names
from disttrain.launch.config import LaunchConfig
from disttrain.launcher.restart_policy import Exit
from disttrain.transport.config import TransportConfig
from disttrain.transport.factory import open_transport
from disttrain.transport.header import Role


class ControlLink:
    """The link over the job's own transport."""

    def __init__(self, config: LaunchConfig) -> None:
        self._transport = open_transport(
            TransportConfig(kind=config.transport, job_uid=config.job_uid, role=Role.LAUNCHER)
        )
        address = config.coordinator_address
        self._client = CoordinatorClient(lambda: self._transport.connect(address), Role.LAUNCHER)

    def died(self, name: str, pid: int, exit_: Exit, log_tail: str) -> None:
        """Send MemberDied."""
        self._client.request(_member_died(name, pid, exit_, log_tail, final=False))

    def lost(self, name: str, pid: int, exit_: Exit, log_tail: str) -> None:
        """Send MemberDied with its final mark."""
        self._client.request(_member_died(name, pid, exit_, log_tail, final=True))

    def fail(self, message: str) -> None:
        """Send Fail."""
        reason = messages.FailureReason.TASK_ERROR
        self._client.request(messages.Fail(reason=reason, message=message))

    def stop(self, reason: str) -> None:
        """Send Stop."""
        self._client.request(messages.Stop(reason=reason))

    def close(self) -> None:
        """End the client's thread."""
        self._client.close()
        self._transport.close()


def _member_died(
    name: str, pid: int, exit_: Exit, tail: str, *, final: bool
) -> messages.MemberDied:
    role, index = names.role_and_index(name)
    return messages.MemberDied(
        role=Role[role.name],
        index=index,
        pid=pid,
        exit_code=exit_.code,
        reason=str(exit_),
        log_tail=tail,
        final=final,
    )
