"""How a process of a replica comes into step with the others of its group."""

from collections.abc import Callable
from concurrent.futures import wait
from functools import partial

from disttrain.coordinator.errors import CoordinatorError
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.errors import DistTrainError
from disttrain.groups.errors import FormsAnew, GroupLost
from disttrain.groups.meeting import Meeting, Rendezvous
from disttrain.groups.steps import Collective, Leader
from disttrain.launch.config import LaunchConfig
from disttrain.launch.exit_code import ExitCode
from disttrain.replica.cancellation import Cancelled
from disttrain.replica.membership import Membership
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_LOOK_AGAIN_SECONDS = 0.1


class GroupNotFormed(DistTrainError):
    """The first process of a replica ends before it has begun."""

    def __init__(self, message: str, exit_code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def formed(
    config: LaunchConfig, membership: Membership, member: MemberId, check: Callable[[], None]
) -> Collective:
    """The group of this incarnation, once all its processes are there.

    `check` raises when this process is to end, now or later. Raises GroupLost, and NotConnected.
    """
    LOG.info("waits for the other processes of its replica", incarnation=member.incarnation)
    meeting = Meeting(partial(_answer, membership), member, membership.cancellation.sleep)
    return connected(config, meeting, check)


def connected(
    config: LaunchConfig, meeting: Rendezvous, check: Callable[[], None] = lambda: None
) -> Collective:
    """The group whose members meet there. As `formed`."""
    # A replica of one process has no use for torch.distributed.
    from disttrain.groups import gloo  # noqa: PLC0415

    return gloo.form(meeting, config.partition, config.processes, config.group_address, check)


def led(config: LaunchConfig, membership: Membership, member: MemberId) -> Leader:
    """The same for the first process, which leads. Raises GroupNotFormed, and NotConnected."""
    try:
        return Leader(formed(config, membership, member, membership.cancellation.check))
    except (GroupLost, Cancelled) as error:
        raise not_formed(membership, member, error) from error


def not_formed(
    membership: Membership, member: MemberId, error: GroupLost | Cancelled
) -> GroupNotFormed:
    """What ends the first process of a group that was lost before it trained."""
    return GroupNotFormed(str(error) or "told to end", end_of(membership, member, error))


def end_of(membership: Membership, member: MemberId, error: GroupLost | Cancelled) -> ExitCode:
    """How a process ends that cannot take part any more.

    If it does so by its own will, this ends the incarnation: the others need not wait for it.
    """
    told = membership.told_to_end()
    if told is not None:
        return told
    if isinstance(error, FormsAnew):
        membership.leave(member, None, str(error))
        return ExitCode.RESTART
    if isinstance(error, GroupLost):
        # Another one has failed. A notice would say that nobody has.
        return ExitCode.RESTART
    membership.leave(member, None)
    return ExitCode.INTERRUPTED


def _answer(membership: Membership, request: messages.Request) -> messages.Reply:
    asked = membership.coordinator.request(request)
    while not wait([asked], _LOOK_AGAIN_SECONDS).done:
        membership.cancellation.check()
    try:
        return asked.result()
    except CoordinatorError as error:
        raise GroupLost(str(error)) from error
