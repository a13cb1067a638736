"""The coordinator's machine with scripted members, without a network."""

from dataclasses import replace
from typing import Any

from builders.control_members import a_join, obeyed
from disttrain.coordinator.decisions.machine import Coordinator
from disttrain.coordinator.decisions.transaction import (
    BeginCheckpoint,
    CommitCheckpoint,
    CoordinatorSide,
    Places,
    Transaction,
)
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.phases import Phase
from disttrain.coordinator.protocol import commands, messages
from disttrain.coordinator.protocol.fields import MemberId, Position, Progress
from disttrain.coordinator.protocol.notices import Remove
from disttrain.coordinator.protocol.reports import ReplicaReport, ShardReport
from disttrain.coordinator.settings import Settings
from disttrain.coordinator.strategies.downpour import Asynchronous
from disttrain.job.stop import Evaluation, Stop
from disttrain.transport.header import Role

BASE = Settings(
    replicas=2,
    shards=1,
    batch_size=4,
    seed=1,
    stop=Stop(epochs=2),
    portion_size=8,
    evaluation=Evaluation(),
    checkpoint_seconds=1000.0,
)


def asynchronous(warm_start_samples: int = 0, **changes: object) -> Asynchronous:
    settings = replace(BASE, **changes)  # type: ignore[arg-type]
    return Asynchronous(settings=settings, warm_start_samples=warm_start_samples)


class Machine:
    """Members do at once what they are told; every effect succeeds."""

    def __init__(
        self, state: State | None = None, *stages: CoordinatorSide, **changes: object
    ) -> None:
        places = Places(model_file="m", best_file="b", staging=str, checkpoint=str)
        job = stages or (asynchronous(**changes),)  # type: ignore[arg-type]
        self.coordinator = Coordinator(state or State(), job, places)
        self.now = 100.0
        self.ledgers: dict[int, bytes] = {}
        self.evaluation = {"accuracy": 5.0}
        self.evaluated: list[str | None] = []
        self.positions: dict[MemberId, Progress] = {}
        self.muted: set[MemberId] = set()

    @property
    def state(self) -> State:
        return self.coordinator.state

    def phase(self) -> Phase:
        return self.state.phase

    def request(self, request: messages.Request | Remove) -> messages.Reply:
        transaction = self.coordinator.request(request, self.now)
        self._carry_out(transaction)
        assert transaction.reply is not None
        return transaction.reply

    def tick(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self._carry_out(self.coordinator.tick(self.now))

    def join(self, role: Role, index: int | None, instance: str, **more: Any) -> messages.Reply:
        return self.request(a_join(role, index, instance, **more))

    def member(self, role: Role, index: int | None, instance: str, **more: Any) -> MemberId:
        reply = self.join(role, index, instance, **more)
        assert isinstance(reply, messages.Joined), reply
        return reply.member

    def running(self) -> tuple[MemberId, MemberId, MemberId]:
        """One shard and two replicas, initial values uploaded."""
        shard = self.member(Role.SHARD, 0, "s0")
        replicas = [self.member(Role.REPLICA, index, f"r{index}") for index in range(2)]
        self.obey()
        return shard, replicas[0], replicas[1]

    def heartbeat(
        self, member: MemberId, report: ReplicaReport | ShardReport | None = None
    ) -> messages.Reply:
        if isinstance(report, ShardReport):
            return self.request(messages.Heartbeat(member=member, shard=report))
        return self.request(messages.Heartbeat(member=member, replica=report))

    def work(self, member: MemberId, held: int = 0, last_lease: int = 0) -> messages.Work:
        progress = self.positions.get(member, Progress())
        request = messages.RequestWork(
            member=member, held=held, last_lease=last_lease, progress=progress
        )
        reply = self.request(request)
        assert isinstance(reply, messages.Work), reply
        return reply

    def reach(self, member: MemberId, lease: int, offset: int) -> None:
        known = self.positions.get(member, Progress())
        before = known.position.offset if known.position.lease == lease else 0
        self.positions[member] = Progress(
            position=Position(lease=lease, offset=offset), samples=known.samples + offset - before
        )
        self.heartbeat(member, ReplicaReport(progress=self.positions[member]))

    def next_work(self, member: MemberId) -> messages.Work:
        """The answer to a replica that has done all it knows of."""
        last = self.positions.get(member, Progress()).position.lease
        return self.work(member, last_lease=last)

    def process(self, member: MemberId) -> bool:
        """Asks once for work and does it; whether there was any."""
        leases = self.next_work(member).leases
        for lease in leases:
            self.reach(member, lease.id, lease.samples)
        return bool(leases)

    def process_everything(self, member: MemberId) -> None:
        """Asks for work and does it until there is none."""
        while self.process(member):
            self.obey()

    def obey(self) -> None:
        """Answers commands until there are none."""
        for _ in range(50):
            waiting = [
                issued for issued in self.state.orders.values() if issued.member not in self.muted
            ]
            if not waiting:
                return
            for issued in waiting:
                result = self._result(issued.order, issued.member)
                done = messages.CommandDone(member=issued.member, order=issued.id, result=result)
                self.request(done)

    def _result(self, command: commands.Command, member: MemberId) -> commands.Result:
        if isinstance(command, commands.Checkpoint):
            return commands.ShardWritten(file="f", bytes=1, hash="0", version=1)
        if isinstance(command, commands.Evaluate):
            self.evaluated.append(command.model_file)
            return commands.Evaluated(sums=self.evaluation, samples=10, loss=1.0)
        return obeyed(command, self.positions.get(member, Progress()))

    def _carry_out(self, transaction: Transaction) -> None:
        for effect in transaction.effects:
            if isinstance(effect, BeginCheckpoint):
                self.ledgers[effect.number] = effect.ledger
            elif isinstance(effect, CommitCheckpoint):
                ended = self.coordinator.checkpoint_ended(effect.number, self.now)
                self._carry_out(ended)
