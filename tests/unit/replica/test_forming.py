"""How a process of a replica ends that cannot take part, and whom it tells."""

from typing import cast

import pytest

from disttrain.coordinator.protocol.fields import MemberId, Progress
from disttrain.groups.errors import FormsAnew, GroupLost
from disttrain.launch.exit_code import ExitCode
from disttrain.replica import forming
from disttrain.replica.cancellation import Cancelled
from disttrain.replica.membership import Membership
from disttrain.transport.header import Role

MEMBER = MemberId(role=Role.REPLICA, index=0, incarnation=1)


class Scripted:
    """A membership that was told to end, or was not."""

    def __init__(self, told: ExitCode | None) -> None:
        self._told = told
        self.reasons: list[str] = []
        """Of its leave notices."""

    def told_to_end(self) -> ExitCode | None:
        return self._told

    def leave(self, member: MemberId, progress: Progress | None, reason: str = "SIGTERM") -> None:
        assert (member, progress) == (MEMBER, None)
        self.reasons.append(reason)


@pytest.mark.parametrize(
    ("error", "code", "reasons"),
    [
        pytest.param(Cancelled(), ExitCode.INTERRUPTED, ["SIGTERM"], id="was told by a signal"),
        pytest.param(FormsAnew("anew"), ExitCode.RESTART, ["anew"], id="forms anew"),
        pytest.param(GroupLost("broke"), ExitCode.RESTART, [], id="another one has failed"),
    ],
)
def test_who_ends_by_its_own_will_ends_the_incarnation(
    error: GroupLost | Cancelled, code: ExitCode, reasons: list[str]
) -> None:
    membership = Scripted(told=None)
    assert forming.end_of(cast("Membership", membership), MEMBER, error) is code
    assert membership.reasons == reasons


@pytest.mark.parametrize("told", [ExitCode.COMPLETE, ExitCode.RESTART])
@pytest.mark.parametrize("error", [Cancelled(), FormsAnew("anew"), GroupLost("broke")])
def test_who_was_told_to_end_tells_nobody(told: ExitCode, error: GroupLost | Cancelled) -> None:
    membership = Scripted(told)
    assert forming.end_of(cast("Membership", membership), MEMBER, error) is told
    assert membership.reasons == []
