"""A replica's process: one thread talks to the coordinator, others work on what it is given.

Of a replica of several processes the others take part in its steps.
"""

from collections import deque
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

import numpy as np
import safetensors.numpy

from builders import placements
from disttrain.checkpoint import export
from disttrain.coordinator.protocol import commands, messages
from disttrain.coordinator.protocol.commands import NumberedCommand, Result
from disttrain.coordinator.protocol.fields import Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.groups import steps
from disttrain.transport.header import Role
from simulation.sim_batch_work import BatchWork
from simulation.sim_group import SimGroup
from simulation.sim_local_steps import LocalStepsWork
from simulation.sim_work import DownpourWork, Place, Work
from simulation.world import TICK_SECONDS, World, accuracy

_TEST_SAMPLES = 10


class SimReplica(Place):
    """One incarnation of a process of one replica."""

    def __init__(self, world: World, index: int, partition: int = 0) -> None:
        super().__init__(world, index)
        self.partition = partition
        self.work: Work | None = None
        self._commands: deque[NumberedCommand] = deque()
        self.run(self._talk)

    def _talk(self) -> None:
        joined = self._join()
        self.run(partial(self._work if self.partition == 0 else self._follow, joined))
        control, waiting = self.control, dict[int, Future[messages.Reply]]()
        while not self.is_over or waiting or self.asked:
            while self.asked:
                request, future = self.asked.popleft()
                if isinstance(request, messages.CommandDone):
                    control.report_now(self._report)
                waiting[control.request(request)] = future
            received = control.poll(self._report, TICK_SECONDS)
            self._commands.extend(received.commands)
            for number, reply in received.replies.items():
                if number in waiting:
                    waiting.pop(number).set_result(reply)
            if received.commands or received.replies:
                self.bell.ring()

    def _join(self) -> messages.Joined:
        join = messages.Join(
            role=Role.REPLICA,
            index=self.index,
            partition=self.partition,
            partitions=self.world.job.spec.replicas.partitions,
            instance=f"replica-{self.pid}",
            pid=self.pid,
        )
        if self.partition == 0:
            layout = placements.of_lengths({self.world.vector: self.world.parameters})
            samples = self.world.samples
            join = replace(join, layout=layout, train_samples=samples, test_samples=_TEST_SAMPLES)
        return self.control.join(join, timeout=600.0)

    def _follow(self, joined: messages.Joined) -> None:
        """Of the job's end every process hears from the coordinator."""
        group = SimGroup(self, joined.member)
        self.run(self._hear)
        steps.follow(group, lambda _: None)

    def _hear(self) -> None:
        while not self.is_over:
            for command in list(self._commands):
                self._commands.remove(command)
                assert isinstance(command.order, commands.End)
                self.request(
                    messages.CommandDone(
                        member=self.control.member, order=command.id, result=commands.Done()
                    )
                )
                self.end()
            self.wait()

    def _report(self) -> ReplicaReport:
        if self.work is None:
            return ReplicaReport()
        return ReplicaReport(progress=self.work.progress(), steps=self.work.steps)

    def _work(self, joined: messages.Joined) -> None:
        if self.world.job.spec.replicas.partitions > 1:
            self.before_step = steps.Leader(SimGroup(self, joined.member)).before_step
        strategy = self.world.job.spec.strategy
        rule = strategy.sandblaster
        work: Work
        if strategy.local_steps is not None:
            work = LocalStepsWork(self, joined)
        elif rule is None or rule.warm_start is not None:
            work = DownpourWork(self, joined)
        else:
            work = BatchWork(self, joined, Progress())
        self.work = work
        while not self.is_over:
            work = self._carry_out_commands(work, joined)
            if not work.step():
                self.wait()

    def _carry_out_commands(self, work: Work, joined: messages.Joined) -> Work:
        for command in list(self._commands):
            if isinstance(command.order, commands.Evaluate) and not work.fetched:
                continue
            self._commands.remove(command)
            if isinstance(command.order, commands.LeaveWarmStart) and isinstance(
                work, DownpourWork
            ):
                work.drain()
                self.work = work = BatchWork(self, joined, work.progress())
            result = self._carry_out(command.order, work)
            done = messages.CommandDone(member=self.control.member, order=command.id, result=result)
            self.request(done)
        return work

    def _carry_out(self, command: commands.Command, work: Work) -> Result:
        match command:
            case commands.Upload():
                work.upload(command.shards)
            case commands.Drain():
                work.drain()
                return commands.Drained(progress=work.progress())
            case commands.Evaluate():
                return self._evaluate(command.model_file, work)
            case commands.Export():
                export.export_named(command.checkpoint, command.out)
            case commands.End():
                self.end()
        return commands.Done()

    def _evaluate(self, file: str | None, work: Work) -> Result:
        if file is None:
            values = np.array(work.fetch_now())
        else:
            values = safetensors.numpy.load_file(file)["parameters"]
        self.world.network.time.wait(self.world.chance.uniform(0.1, 1.0))
        sums = {"accuracy": _TEST_SAMPLES * accuracy(values)}
        return commands.Evaluated(sums=sums, samples=_TEST_SAMPLES, loss=1.0)
