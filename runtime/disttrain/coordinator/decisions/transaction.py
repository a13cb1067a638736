"""One transaction of the coordinator: the state, the time, and what has been decided so far.

Deterministic: no clock, no socket, no file; the time is handed in.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from disttrain.coordinator.decisions.failures import Failures
from disttrain.coordinator.decisions.indices import LiveMembers, OpenCommands
from disttrain.coordinator.journal import entries, job_entries, member_entries
from disttrain.coordinator.journal.group import Group
from disttrain.coordinator.journal.job_entries import CheckpointEnded
from disttrain.coordinator.journal.state import IssuedCommand, State
from disttrain.coordinator.phases import FailureReason, Phase
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.commands import Command, End, Result, ShardWritten
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.settings import Settings
from disttrain.coordinator.status.progress import Stage
from disttrain.coordinator.status.watch import Watch


@dataclass(frozen=True, kw_only=True, slots=True)
class BeginCheckpoint:
    """Make the staging folder and write the ledger into it, before any command leaves."""

    number: int
    ledger: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitCheckpoint:
    """All parts are there: write the manifest."""

    number: int
    parts: dict[int, ShardWritten]
    update_rule: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AbandonCheckpoint:
    """Remove the staging folder."""

    number: int


Effect = BeginCheckpoint | CommitCheckpoint | AbandonCheckpoint


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Where things lie; as members see them."""

    model_file: str
    best_file: str
    """Of the best evaluation's model."""
    staging: Callable[[int], str]
    """Folder that the parts of a checkpoint are written to, by number."""
    checkpoint: Callable[[int], str]
    """Folder of a committed checkpoint, by number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordinatorSide(Stage):
    """What a strategy decides in the coordinator. It holds no state: that is the transaction's."""

    of: ClassVar[type[Any]]
    """The manifest's type for it."""

    @classmethod
    @abstractmethod
    def made(cls, rule: Any, common: Settings) -> Self:
        """As a manifest has it, with what all strategies have in common."""

    @staticmethod
    def kept(rule: Any) -> tuple[str, ...]:
        """Names of the vectors that holders keep beside what is trained."""
        del rule
        return ()

    @property
    def has_quiet_points(self) -> bool:
        """Whether nothing is under way every so often, and it is saved and ended there alone."""
        return False

    @property
    def own_data_problem(self) -> str:
        """Why a loop that brings its own data cannot take part; empty: it can."""
        return ""

    def fits(self, transaction: "Transaction") -> bool:
        """Whether the data is of a size that it can work on; if not, the job fails."""
        del transaction
        return True

    def begin(self, transaction: "Transaction", checkpoint: int | None) -> None:
        """It begins anew, or at the checkpoint of this number, where the stage before has ended."""

    @abstractmethod
    def run(self, transaction: "Transaction") -> None:
        """Takes every step that is due while the job runs."""

    def watch_the_end(self, transaction: "Transaction") -> None:
        """Has a job that closes go on, where a lost shard took with it what it would end with."""

    @abstractmethod
    def give(self, transaction: "Transaction", request: messages.RequestWork) -> messages.Work:
        """Work for a replica, whose progress is known."""

    def take(
        self, transaction: "Transaction", request: messages.GroupDone
    ) -> messages.Acknowledged | None:
        """A result of a replica. None: too early, it is sent again."""
        del transaction, request
        return messages.Acknowledged()

    def answered(self, transaction: "Transaction", issued: IssuedCommand, result: Result) -> None:
        """What follows from an answer to a command that is the strategy's own."""

    def shard_lost(self, transaction: "Transaction") -> None:
        """An incarnation of a shard has ended."""

    def has_work(self, transaction: "Transaction", member: MemberId) -> bool:
        """Whether a replica has work that others would wait for if it is silent."""
        return any(not held.lost for held in transaction.state.data.held(member))


@dataclass(kw_only=True, slots=True)
class Transaction:
    """What one event leads to: entries for the journal, then effects, the reply and commands."""

    state: State
    stages: Sequence[CoordinatorSide]
    """The strategies that the job has one after another."""
    stage: int
    """The number of the one at work."""
    places: Places
    watch: Watch
    failures: Failures
    commands: OpenCommands
    live: LiveMembers
    now: float
    decided: list[entries.Entry] = field(default_factory=list)
    """To be journaled before anything is answered."""
    effects: list[Effect] = field(default_factory=list)
    reply: messages.Reply | None = None
    """Without one a request is repeated."""
    patience_seconds: float = 0.0
    """The reply may be kept back for so long, and be decided again whenever something happens: it
    gives nothing now."""

    @property
    def strategy(self) -> CoordinatorSide:
        return self.stages[self.stage]

    @property
    def following(self) -> CoordinatorSide | None:
        return self.stages[self.stage + 1] if self.stage + 1 < len(self.stages) else None

    @property
    def settings(self) -> Settings:
        return self.strategy.settings

    def record(self, entry: entries.Entry) -> None:
        entry.apply(self.state)
        self.decided.append(entry)

    def issue(
        self, member: MemberId, command: Command, shards: dict[int, int] | None = None
    ) -> None:
        entry = member_entries.CommandIssued(
            id=self.state.next_order, member=member, order=command, shards=shards or {}
        )
        self.record(entry)
        self.commands.add(self.state.orders[entry.id])

    def tell(self, groups: Iterable[Group], command: Command) -> None:
        """Gives the command to each that has no open one of its kind."""
        told = {issued.member for issued in self.commands.of_kind(type(command))}
        for group in groups:
            if group.member not in told:
                self.issue(group.member, command)

    def holders(self) -> Sequence[Group]:
        """The living ones, in the order of their indices."""
        groups = self.state.groups(self.settings.holder_role)
        found = (groups.get(index) for index in range(self.settings.holders))
        return [group for group in found if group is not None and group.takes_part]

    def holders_ready(self) -> bool:
        holders = self.holders()
        return len(holders) == self.settings.holders and all(one.has_values for one in holders)

    def go_to(self, phase: Phase, reason: str = "", message: str = "") -> None:
        """Changes the phase; at an end, tells everybody."""
        change = job_entries.PhaseChanged(phase=phase, now=self.now, reason=reason, message=message)
        self.record(change)
        if phase.ended:
            for group in self.live.everybody():
                for member in group.members:
                    self.issue(member, End(reason=reason or self.state.reason))

    def fail(self, reason: FailureReason, message: str) -> None:
        """The job ends as Failed, unless it has ended."""
        if self.state.phase.ended:
            return
        if self.state.checkpoint is not None:
            self.abandon_checkpoint(self.state.checkpoint.number, f"the job failed: {reason}")
        self.go_to(Phase.FAILED, reason, message)

    def abandon_checkpoint(self, number: int, failure: str) -> None:
        self.effects.append(AbandonCheckpoint(number=number))
        self.record(CheckpointEnded(number=number, committed=False, message=failure))
