"""What a large job costs its coordinator: 100 shards and 1,000 replicas that are only members.

The coordinator is a real process with its journal on disk. The members are simulated in this
process, each with a control socket of its own over TCP. They join at once, do what they are told,
send heartbeats at the intervals that the coordinator tells, and ask for work as replicas do whose
portions last some seconds. Only the coordinator's own CPU is counted.

On a machine that cannot keep up, members say less than they would: the share of a core is that of
the messages which they would send, at the CPU that each of them took.
"""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import free_port
from builders.control_members import LAYOUT, CoordinatorProcess, tell
from builders.report import Bar, print_report
from disttrain.checkpoint import digest, names
from disttrain.coordinator.protocol import commands, messages
from disttrain.coordinator.protocol.control import ControlConnection, Received
from disttrain.coordinator.protocol.fields import Lease, Position, Progress, SenderPosition
from disttrain.coordinator.protocol.reports import STALENESS_BOUNDS, ReplicaReport, ShardReport
from disttrain.transport.header import Role

PORTION_SAMPLES = 2048
PORTION_SECONDS = 6.4
"""Of a replica: 64 batches of 32, ten steps in a second."""
ROUND_SECONDS = 0.5
"""Between two looks at all members, so that this process needs little of a machine."""
STEADY_SECONDS = 120.0
GIVE_UP_SECONDS = 900.0
START_CPU_SECONDS = 60.0
STEADY_CORES = 0.3
_CONTENT = b"a shard's part"


class Member:
    """Joins, and does at once what it is told."""

    def __init__(self, control: ControlConnection, join: messages.Join) -> None:
        self.control = control
        self.joined: messages.Joined | None = None
        self.sent = 0
        """Requests of any kind, repeats not counted."""
        self._joining = self._request(join)

    def step(self, now: float) -> None:
        """Hear, obey, speak if it is time."""
        received = self.control.poll(self._report if self.joined else None)
        joined = received.replies.get(self._joining)
        if isinstance(joined, messages.Joined):
            self.joined = joined
        done = [(command, self.obey(command.order)) for command in received.commands]
        if done:
            self.sent += len(done)
            self.control.answer(done, self._report)
        if self.joined:
            self.work(received, now)

    def _request(self, request: messages.Request) -> int:
        self.sent += 1
        return self.control.request(request)

    def _report(self) -> ReplicaReport | ShardReport:
        self.sent += 1
        return self.report()

    def report(self) -> ReplicaReport | ShardReport:
        raise NotImplementedError

    def obey(self, command: commands.Command) -> commands.Result:
        raise NotImplementedError

    def work(self, received: Received, now: float) -> None:
        """What else it does in its incarnation."""


class Shard(Member):
    """Has no values: it says that it has."""

    def __init__(self, control: ControlConnection, index: int) -> None:
        address = f"tcp://digits-shard-{index}.digits.default.svc:7071"
        super().__init__(
            control,
            messages.Join(
                role=Role.SHARD, index=index, instance=f"s{index}", pid=1, data_address=address
            ),
        )

    def report(self) -> ShardReport:
        return ShardReport(version=5, applied=5, staleness=(1,) * len(STALENESS_BOUNDS))

    def obey(self, command: commands.Command) -> commands.Result:
        if isinstance(command, commands.Fence):
            sender = SenderPosition(
                index=command.index, incarnation=command.incarnation, position=Position()
            )
            return commands.Fenced(sender=sender)
        if isinstance(command, commands.Checkpoint):
            name = names.part_file(self.control.member.index)
            (Path(command.folder) / name).write_bytes(_CONTENT)
            return commands.ShardWritten(
                file=name, bytes=len(_CONTENT), hash=digest.of(_CONTENT), version=5
            )
        return commands.Done()


class Replica(Member):
    """Computes by looking at the clock."""

    def __init__(self, control: ControlConnection, index: int, samples: int) -> None:
        self._leases: list[Lease] = []
        self._began = 0.0
        """When the present lease was."""
        self._finished = 0
        """Samples of leases that are over."""
        self._last = 0
        self._asking = 0
        self._ask_at = 0.0
        self._progress = Progress()
        super().__init__(
            control,
            messages.Join(
                role=Role.REPLICA,
                index=index,
                instance=f"r{index}",
                pid=2,
                layout=LAYOUT,
                train_samples=samples,
                test_samples=10,
            ),
        )

    def report(self) -> ReplicaReport:
        steps = self._progress.samples // 32
        return ReplicaReport(
            progress=self._progress,
            steps=steps,
            pushes=steps,
            loss_sum=0.5 * steps,
            loss_steps=steps,
            staleness=(1,) * len(STALENESS_BOUNDS),
        )

    def obey(self, command: commands.Command) -> commands.Result:
        if isinstance(command, commands.Drain):
            return commands.Drained(progress=self._progress)
        if isinstance(command, commands.Evaluate):
            return commands.Evaluated(sums={}, samples=10, loss=0.5)
        return commands.Done()

    def work(self, received: Received, now: float) -> None:
        reply = received.replies.get(self._asking)
        if isinstance(reply, messages.Work):
            self._take(reply, now)
        self._compute(now)
        if not self._asking and len(self._leases) < 2 and now >= self._ask_at:
            request = messages.RequestWork(
                member=self.control.member,
                held=len(self._leases),
                last_lease=self._last,
                progress=self._progress,
            )
            self._asking = self._request(request)

    def _take(self, reply: messages.Work, now: float) -> None:
        self._asking = 0
        new = [lease for lease in reply.leases if lease.id > self._last]
        if new and not self._leases:
            self._began = now
        if not new:
            self._ask_at = now + reply.after_seconds
        self._leases += new
        self._last = max([self._last, *(lease.id for lease in new)])

    def _compute(self, now: float) -> None:
        if not self._leases:
            return
        lease = self._leases[0]
        batches = int((now - self._began) / PORTION_SECONDS * PORTION_SAMPLES) // 32
        offset = min(32 * batches, lease.samples)
        self._progress = Progress(
            position=Position(lease=lease.id, offset=offset), samples=self._finished + offset
        )
        if offset == lease.samples:
            self._leases.pop(0)
            self._finished += offset
            self._began = now


class Job:
    """A coordinator and all its members."""

    def __init__(self, folder: Path, shards: int, replicas: int) -> None:
        self.process = CoordinatorProcess(
            folder,
            f"spec.parameterServer.shards={shards}",
            f"spec.replicas.count={replicas}",
            f"spec.portionSize={PORTION_SAMPLES}",
            "spec.stop={epochs: 1000000}",
        )
        address = f"tcp://127.0.0.1:{free_port.find()}"
        self.process.launch = replace(
            self.process.launch, coordinator_address=address, listen_address=address
        )
        self._samples = replicas * 8 * PORTION_SAMPLES
        self.shards: list[Shard] = []
        self.replicas: list[Replica] = []
        self._counts = shards, replicas

    @property
    def members(self) -> Sequence[Member]:
        return [*self.shards, *self.replicas]

    def join(self) -> None:
        """Everybody connects and says so; the answers are not waited for."""
        shards, replicas = self._counts
        self.shards = [Shard(self._control(Role.SHARD), index) for index in range(shards)]
        self.replicas = [
            Replica(self._control(Role.REPLICA), index, self._samples) for index in range(replicas)
        ]

    def play(self, seconds: float) -> None:
        """Everybody goes on for so long."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            for member in self.members:
                member.step(now)
            time.sleep(max(0.0, min(end, now + ROUND_SECONDS) - time.monotonic()))

    def is_settled(self) -> bool:
        """Whether everybody trains, and each shard serves all."""
        wanted = self._counts[1]
        return all(member.joined for member in self.members) and all(
            shard.control.latest.phase == "Running"
            and len(shard.control.latest.replicas or ()) == wanted
            for shard in self.shards
        )

    def status(self) -> dict[str, object]:
        reply = tell(self.process.launcher(), messages.Status())
        assert isinstance(reply, messages.StatusReply)
        return reply.status

    def cpu_seconds(self) -> float:
        """Of the coordinator's process since its start."""
        used = psutil.Process(self._pid).cpu_times()
        return float(used.user + used.system)

    def most_memory_mb(self) -> float:
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1000

    @property
    def _pid(self) -> int:
        assert self.process.process is not None
        return self.process.process.pid

    def _control(self, role: Role) -> ControlConnection:
        return ControlConnection(self.process.channel(role), role, 1.0)


def main() -> None:
    """Measure and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="4 shards, 20 replicas, 5 s")
    quick = parser.parse_args().quick
    shards, replicas, seconds = (4, 20, 5.0) if quick else (100, 1000, STEADY_SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder), shards, replicas)
        with job.process:
            figures = measure(job, seconds)
    bars = [
        Bar(
            "CPU seconds of the coordinator until everybody trains",
            figures["start_cpu_seconds"],
            START_CPU_SECONDS,
            at_least=False,
        ),
        Bar(
            "share of a core while they train",
            figures["steady_cores"],
            STEADY_CORES,
            at_least=False,
        ),
    ]
    print_report("coordinator_scale", {"shards": shards, "replicas": replicas, **figures}, bars)


def measure(job: Job, seconds: float) -> dict[str, float]:
    """Start, settle, and go on for so long."""
    job.process.start()
    began = time.monotonic()
    job.join()
    while not job.is_settled():
        job.play(0.25)
        if time.monotonic() - began > GIVE_UP_SECONDS:
            message = f"not settled in {GIVE_UP_SECONDS:.0f} s: {job.status()}"
            raise TimeoutError(message)
    start_cpu, start_seconds = job.cpu_seconds(), time.monotonic() - began
    intervals = job.shards[0].control.latest.intervals
    assert intervals is not None
    job.play(2 * intervals.heartbeat_seconds)
    cpu, sent, began = job.cpu_seconds(), _sent(job), time.monotonic()
    job.play(seconds)
    cpu, sent, took = job.cpu_seconds() - cpu, _sent(job) - sent, time.monotonic() - began
    members, replicas = len(job.members), len(job.replicas)
    wanted = members / intervals.heartbeat_seconds + replicas / PORTION_SECONDS
    return {
        "start_cpu_seconds": start_cpu,
        "start_seconds": start_seconds,
        "heartbeat_seconds": intervals.heartbeat_seconds,
        "messages_per_second": sent / took,
        "messages_per_second_wanted": wanted,
        "cpu_ms_per_message": 1000.0 * cpu / sent,
        "measured_cores": cpu / took,
        "steady_cores": cpu / took * max(1.0, wanted * took / sent),
        "most_memory_mb": job.most_memory_mb(),
        "simulator_cpu_seconds": resource.getrusage(resource.RUSAGE_SELF).ru_utime,
    }


def _sent(job: Job) -> int:
    return sum(member.sent for member in job.members)


if __name__ == "__main__":
    main()
