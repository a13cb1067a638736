"""Requests to the coordinator and its replies: frozen dataclasses, made JSON in `payloads`.

Every request may be sent again until it is answered: repeating it changes nothing. Only a
`HeartbeatReply` may come unasked.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from disttrain.coordinator.phases import FailureReason
from disttrain.coordinator.protocol.commands import NumberedCommand, Result
from disttrain.coordinator.protocol.content import Content
from disttrain.coordinator.protocol.fields import (
    Count,
    Lease,
    MemberId,
    Partition,
    Partitions,
    Progress,
    Restored,
    Strict,
    Tagged,
    Text,
)
from disttrain.coordinator.protocol.reports import ReplicaReport, ShardReport
from disttrain.sandblaster.batch.groups import Result as GroupResult
from disttrain.state.layout import SoundLayout
from disttrain.state.placement import SoundPlacement
from disttrain.transport.header import Role

Digest = Annotated[str, Field(max_length=128, exclude_if=lambda digest: not digest)]

UNASKED = 0
"""Sequence of a reply to no request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Join(Tagged, kind="join"):
    """A process introduces itself.

    The same instance gets the same answer. Answer `Joined`, `ComeAgain` or `Refused`.
    """

    role: Role
    index: Count | None
    """Of the group; None: the coordinator chooses, for a group of one."""
    partition: Partition = 0
    """Of the process, in its group."""
    partitions: Partitions = 1
    """Processes of the group."""
    place: Text = ""
    """Name of the only place where the process can be, its pod: who joins from the same place is
    the next incarnation of the same process. Empty: not known."""
    instance: Annotated[str, Field(min_length=1, max_length=128)]
    """Random, one per incarnation of a process."""
    pid: Count
    data_address: Text | None = None
    """Shards: where replicas connect to."""
    metrics_address: Text | None = None
    layout: SoundLayout | None = None
    """Replicas."""
    train_samples: Count | None = None
    """Replicas; None: its loop brings its own data and asks for no work."""
    sources: Digest = ""
    """Of the sources of a replica whose training data is read in order; else empty."""
    test_samples: Count | None = None
    """Replicas; None or 0: there is nothing to evaluate on."""
    content: Content = ()
    """Replicas of a run that strangers may join: examples of their data."""
    restored: Restored | None = None
    """Shards; None in a first incarnation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Heartbeat(Tagged, kind="heartbeat"):
    """A member lives and tells its counters. Answer `HeartbeatReply` or `Refused`."""

    member: MemberId
    epoch: Count = 0
    """Of the members that it has been told of: see `HeartbeatReply`."""
    replica: ReplicaReport | None = None
    shard: ShardReport | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestWork(Tagged, kind="request_work"):
    """A replica asks before it runs dry. Answer `Work` or `Refused`."""

    member: MemberId
    held: Count
    """Leases received and not yet completely computed, the current one included."""
    last_lease: Count
    """Highest lease id received so far; 0 before the first. Those beyond it are sent again."""
    progress: Progress
    attempts: tuple[Count, ...] = ()
    """With a batch method: attempts at groups received and not yet told of by `GroupDone`."""


MOST_KEY_BYTES = 256
MOST_VALUE_BYTES = 64 * 1024
Key = Annotated[str, Field(min_length=1, max_length=MOST_KEY_BYTES)]
Value = Annotated[str, Field(max_length=4 * (MOST_VALUE_BYTES + 2) // 3)]
"""In base64."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Meet(Tagged, kind="meet"):
    """A member of a group that forms gives values to the others, and asks for theirs.

    Nothing of it is journaled. Answer `Met` or `Refused`.
    """

    member: MemberId
    put: Annotated[dict[Key, Value], Field(max_length=8)] = field(default_factory=dict)
    wanted: Annotated[tuple[Key, ...], Field(max_length=8)] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupDone(Tagged, kind="group_done"):
    """A replica's gradient of a group is staged on every shard. Answer `Acknowledged`."""

    member: MemberId
    result: GroupResult


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandDone(Tagged, kind="order_done"):
    """The answer to a command. Answer `Acknowledged` or `Refused`."""

    member: MemberId
    order: Count
    result: Result


@dataclass(frozen=True, kw_only=True, slots=True)
class Leave(Tagged, kind="leave"):
    """A member ends by its own will (SIGTERM): nothing of it is under way any more.

    Answer `Acknowledged`.
    """

    member: MemberId
    reason: Text
    progress: Progress | None = None
    """Replicas; the rest of their leases is given to others. None: how far the shards are tells."""
    saved: bool = False
    """Shards: all that they have applied is on disk, for their next incarnation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fail(Tagged, kind="fail"):
    """From the launcher, or from a member without one: the job cannot go on.

    Answer `Acknowledged`; it ends as Failed.
    """

    reason: FailureReason
    message: Text


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberDied(Tagged, kind="member_died"):
    """From the launcher: a process ended. It is fenced at once. Answer `Acknowledged`."""

    role: Role
    index: Count
    partition: Partition = 0
    pid: Count
    """Of the process that ended; another incarnation with another pid is left alone."""
    exit_code: int
    """Negative: the signal."""
    reason: Text = ""
    log_tail: Text = ""
    final: bool = False
    """No restart follows: the budget is spent. The job fails as TooManyRestarts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Status(Tagged, kind="status"):
    """Anybody on this machine asks how the job is. Answer `StatusReply`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AskPlacement(Tagged, kind="ask_placement"):
    """Before a holder restores what it holds, and joins. Answer `Placed`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop(Tagged, kind="stop"):
    """From the launcher (Ctrl-C): drain, checkpoint, end as Stopped. Answer `Acknowledged`."""

    reason: Text
    at_once: bool = False
    """Without draining and a checkpoint."""


Request: TypeAlias = Annotated[
    Join
    | Heartbeat
    | Meet
    | RequestWork
    | GroupDone
    | CommandDone
    | Leave
    | Fail
    | MemberDied
    | Status
    | AskPlacement
    | Stop,
    Field(discriminator="kind"),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardAddress(Strict):
    """Where a shard's present incarnation listens."""

    index: Count
    incarnation: Count
    address: Text


@dataclass(frozen=True, kw_only=True, slots=True)
class Intervals(Strict):
    """How often a member speaks: the more members, the less often."""

    heartbeat_seconds: float
    repeat_seconds: float
    """The longest pause before a request without an answer is sent again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed(Tagged, kind="placed"):
    """The answer to `AskPlacement`, journaled before it is sent; empty before a model is known."""

    placement: SoundPlacement | None = None
    layout: SoundLayout | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Met(Tagged, kind="met"):
    """The answer to `Meet`: those of the wanted values that somebody has given."""

    coordinator: Count
    """Incarnation of the coordinator. What an earlier one was given is lost."""
    values: dict[Key, Value]


@dataclass(frozen=True, kw_only=True, slots=True)
class Joined(Tagged, kind="joined"):
    """The answer to `Join`, journaled before it is sent."""

    member: MemberId
    seed: Count
    epoch: Count = 0
    """As in `HeartbeatReply`."""
    shards: tuple[ShardAddress, ...] = ()
    """For a replica: those known so far; all of them come with heartbeat replies."""
    replicas: dict[int, Count] = field(default_factory=dict)
    """For a shard: the living replicas, to be admitted before it serves; all other incarnations are
    refused. Index -> incarnation."""
    instances: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """For a shard: the instances of those replicas, by which it knows their certificates. Index ->
    instance of each partition."""
    placement: SoundPlacement | None = None
    """None, for a shard: the model is not known yet; `commands.Configure` follows."""
    portion_size: Count = 0
    """Samples per portion; 0 as long as the size of the data is unknown."""
    train_samples: Count = 0
    """Of a pass over the training data; 0 as long as nobody has told it."""
    live_replicas: Count = 0
    intervals: Intervals | None = None
    """None: as the member was started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComeAgain(Tagged, kind="come_again"):
    """The answer to a `Join` that comes too early: it is to be sent again later."""

    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    message: Text


class RefusalReason(StrEnum):
    """Why the coordinator refused a request."""

    OLD_INCARNATION = "OldIncarnation"
    """This incarnation was declared dead: end."""
    REMOVED = "Removed"
    """The same, and no other incarnation of it may join."""
    UNKNOWN_MEMBER = "UnknownMember"
    """The coordinator does not know this incarnation: join again with the same instance."""
    NO_SUCH_INDEX = "NoSuchIndex"
    FULL = "Full"
    WRONG_MODEL = "WrongModel"
    WRONG_DATA = "WrongData"
    ENDED = "Ended"
    """The job is over."""
    MALFORMED = "Malformed"
    NOT_ALLOWED = "NotAllowed"
    """Not for the sender's role, or in the name of somebody else."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused(Tagged, kind="refused"):
    """A request was not carried out."""

    reason: RefusalReason
    message: Text


@dataclass(frozen=True, kw_only=True, slots=True)
class HeartbeatReply(Tagged, kind="heartbeat_reply"):
    """What a member should know. It also comes unasked, when members joined or ended."""

    orders: tuple[NumberedCommand, ...] = ()
    """Every command to this member that it has not answered."""
    epoch: Count = 0
    """Of the members that matter to this one: it grows with each that joins or ends. What is told
    of an older epoch than is known came late.
    """
    shards: tuple[ShardAddress, ...] | None = None
    """For a replica: where all shards listen. None: the epoch is the one that it knows."""
    replicas: dict[int, Count] | None = None
    """For a shard: index -> incarnation of all replicas that it serves, and of nobody else. None:
    the epoch is the one that it knows.
    """
    instances: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """As in `Joined`; told with `replicas`."""
    live_replicas: Count = 0
    lost_leases: tuple[Count, ...] = ()
    """For a replica: leases it held that were given to others; what it has not begun of them is
    skipped.
    """
    phase: Text = ""
    intervals: Intervals | None = None
    """None: as before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupLease(Strict):
    """An attempt at a group of portions, in one evaluation of a batch method."""

    attempt: Count
    """Unique in the job."""
    group: Count
    evaluation: Count
    """Groups of an earlier evaluation are void as soon as one of a later is seen."""
    portions: tuple[Count, Count]
    """The first one, and the one after the last; as `permutation.portion_indices` cuts epoch 0."""
    shards: tuple[Count, ...]
    """Incarnations of the shards that shall stage it, by their indices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work(Tagged, kind="work"):
    """Leases to process, in this order, after those held.

    Without any: flush the accrued gradients now, since a portion is done only when acknowledged.
    """

    leases: tuple[Lease, ...] = ()
    wait: bool = False
    """True: there may be work later, ask again after `after_seconds`; False without leases: there
    will be none.
    """
    after_seconds: float = 0.1
    lost_leases: tuple[Count, ...] = ()
    live_replicas: Count = 0
    groups: tuple[GroupLease, ...] = ()
    """Instead of leases, with a batch method."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Acknowledged(Tagged, kind="acknowledged"):
    """The request was carried out or was carried out before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StatusReply(Tagged, kind="status_reply"):
    """The content of status.json."""

    status: dict[str, Any]


Reply: TypeAlias = Annotated[
    Joined
    | ComeAgain
    | Refused
    | HeartbeatReply
    | Work
    | Acknowledged
    | StatusReply
    | Placed
    | Met,
    Field(discriminator="kind"),
]
