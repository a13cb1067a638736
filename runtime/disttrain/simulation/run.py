"""One simulated run: shards and replicas in one process, by virtual time."""

import math
import random
from collections import Counter
from functools import partial

import torch
from torch import Tensor

from disttrain.coordinator.leases import permutation
from disttrain.coordinator.leases.data_ledger import ANYBODY, DataLedger
from disttrain.coordinator.protocol.fields import Lease, MemberId
from disttrain.coordinator.protocol.messages import ShardAddress
from disttrain.coordinator.strategies import downpour as leasing
from disttrain.job import defaults, names
from disttrain.parameter_server.client import ClientConfig, FetchClient, PushClient
from disttrain.parameter_server.conversation import Identity
from disttrain.parameter_server.holder_side import ShardState
from disttrain.replay import final_values
from disttrain.replay.shard import ShardInMemory
from disttrain.replay.wires import LOOK_AGAIN_SECONDS, compute_with
from disttrain.replica.connection import Sides
from disttrain.simulation.evaluations import Evaluations, Result
from disttrain.simulation.machines import SHARD_BYTES_PER_SECOND, Machines, StepTimes
from disttrain.simulation.replica import SimulatedReplica
from disttrain.simulation.setting import Setting, in_memory
from disttrain.state.vector import Vector
from disttrain.transport.header import Role, Verb
from disttrain.transport.in_memory import InMemoryTransport, Network, Weather
from disttrain.transport.virtual_time import Bell, VirtualTime


class SimulatedRun:
    """The thread that makes it is the first one of its virtual time."""

    def __init__(
        self,
        setting: Setting,
        machines: Machines,
        replicas: int,
        evaluate_every: int,
    ) -> None:
        """`evaluate_every`: samples between two evaluations."""
        self.setting = setting
        self.time = VirtualTime()
        self.replicas = replicas
        spec = setting.spec
        batch = defaults.samples_per_step(spec)
        self.data = DataLedger(
            seed=setting.seed,
            samples=setting.train_samples,
            portion_size=spec.portion_size
            or permutation.default_portion_size(setting.train_samples, batch, replicas),
            batch_size=batch,
            sources=setting.sources,
        )
        self.is_over = False
        self._machines = machines
        self.evaluations = Evaluations(setting, evaluate_every)
        self._has_ended = Bell(self.time)
        latency = machines.latency_seconds
        self._network = Network(
            self.time,
            chance=random.Random(setting.seed),
            weather=Weather(shortest=latency, longest=latency),
        )
        self.shards = [self._shard(index) for index in range(spec.shards)]
        initial = self.evaluations.learner.model.values_to_upload()
        for shard in self.shards:
            shard.begin_with(initial)
        self._members = [self._replica(index) for index in range(replicas)]
        self._running = replicas

    def run(self) -> Result:
        """Until a condition of `spec.stop` is met."""
        threads = torch.get_num_threads()
        for shard in self.shards:
            self.time.start(partial(self._serve, shard, threads))
        for member in self._members:
            self.time.start(partial(self._train, member, threads))
        end = self.setting.spec.stop.seconds or math.inf
        while self._running and not self.is_over and self.time.now < end:
            self.time.wait(min(LOOK_AGAIN_SECONDS, end - self.time.now), [self._has_ended])
        # What came in after an evaluation that ended the run is not of it.
        is_judged, self.is_over = self.is_over, True
        for shard in self.shards:
            shard.shard.stage.finish()
        points = self.evaluations.points
        if not is_judged and (not points or points[-1].samples < self._samples):
            self._evaluate()
        try:
            return self._result()
        finally:
            self.time.close()

    def values(self) -> dict[Vector, Tensor]:
        """The model's, as the shards have them now."""
        return final_values.whole_values(self.shards, self.setting.spec.strategy.rule.evaluates)

    def lease_for(self, member: MemberId) -> Lease | None:
        """As production's coordinator grants them."""
        data, stop = self.data, self.setting.spec.stop
        if member.index and self._is_warming_up:
            return None
        lease = leasing.next_lease(data, member.index, stop)
        if lease is None and leasing.may_open_epoch(data, stop):
            data.open_epoch()
            lease = leasing.next_lease(data, member.index, stop)
        if lease is not None:
            data.grant(member, lease)
        return lease

    @property
    def is_given_out(self) -> bool:
        data, stop = self.data, self.setting.spec.stop
        waiting = leasing.next_lease(data, ANYBODY, stop)
        return waiting is None and not leasing.may_open_epoch(data, stop)

    @property
    def _is_warming_up(self) -> bool:
        return self._samples < self.setting.warm_start_samples

    @property
    def _samples(self) -> int:
        return min(shard.state.samples for shard in self.shards)

    def _transport(self, role: Role) -> InMemoryTransport:
        return in_memory(self._network, role, self._machines.new_link())

    def _shard(self, index: int) -> ShardInMemory:
        setting = self.setting
        state = ShardState(
            index=index,
            incarnation=1,
            train_samples=setting.train_samples,
            live_replicas=self.replicas,
            clock=lambda: self.time.now,
        )
        listener = self._transport(Role.SHARD).listen(names.shard_name(index))
        replicas = setting.spec.replicas.model_copy(update={"count": self.replicas})
        return ShardInMemory(
            setting.spec.model_copy(update={"replicas": replicas}),
            state,
            setting.placement,
            listener,
            chunk_bytes=self._network.chunk_bytes,
        )

    def _replica(self, index: int) -> SimulatedReplica:
        spec = self.setting.spec
        directory = [
            ShardAddress(index=shard, incarnation=1, address=names.shard_name(shard))
            for shard in range(len(self.shards))
        ]
        config = ClientConfig(
            transport=self._transport(Role.REPLICA),
            identity=Identity(index, 1),
            directory=lambda: directory,
            placement=self.setting.placement,
        )
        batch = defaults.samples_per_step(spec)
        times = StepTimes(self._machines, index, batch, spec.seed, self.replicas)
        sides = Sides(push=PushClient(config), fetch=FetchClient(config))
        member = SimulatedReplica(self, sides, index, times)
        for shard in self.shards:
            shard.shard.admit(member.sender)
        return member

    def _train(self, member: SimulatedReplica, threads: int) -> None:
        compute_with(threads)
        member.run()
        self._running -= 1
        self._has_ended.ring()

    def _serve(self, shard: ShardInMemory, threads: int) -> None:
        """What a shard applies takes it time before the answer, what it gives out after it."""
        compute_with(threads)
        while True:
            due_at, now = shard.shard.stage.due_at, self.time.now
            until = LOOK_AGAIN_SECONDS if due_at is None else max(0.0, due_at - now)
            request = shard.listener.receive(min(until, LOOK_AGAIN_SECONDS))
            shard.shard.stage.advance()
            if request is None:
                continue
            self.time.wait(request.payload.nbytes / SHARD_BYTES_PER_SECOND)
            given_out = shard.serving.fetched_bytes
            shard.serving.serve(request)
            self.time.wait((shard.serving.fetched_bytes - given_out) / SHARD_BYTES_PER_SECOND)
            if (
                request.header.verb == Verb.PUSH
                and not self.is_over
                and self._samples >= self.evaluations.next_samples
            ):
                self._evaluate()

    def _evaluate(self) -> None:
        if self.evaluations.add(self.time.now, self._samples, self.values()):
            self.is_over = True
        if self.is_over:
            self._has_ended.ring()

    def _result(self) -> Result:
        staleness: Counter[int] = Counter()
        for shard in self.shards:
            staleness += shard.records.staleness
        return self.evaluations.result(
            replicas=self.replicas,
            nbytes=sum(member.nbytes for member in self._members),
            computing_seconds=sum(member.computing_seconds for member in self._members),
            staleness=staleness,
        )
