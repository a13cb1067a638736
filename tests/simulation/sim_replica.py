"""A replica that computes, pushes and fetches; its gradients are ones, and ranges of samples."""

from collections import deque
from functools import partial

import numpy as np
import safetensors.numpy

from builders import placements
from disttrain.checkpoint import export
from disttrain.coordinator.protocol import messages, orders
from disttrain.coordinator.protocol.control import ControlConnection
from disttrain.coordinator.protocol.fields import Lease, Position, Progress
from disttrain.coordinator.protocol.orders import NumberedOrder, Result
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.job import defaults
from disttrain.parameter_server.client import ClientConfig, FetchClient, Push, PushClient
from disttrain.parameter_server.messages import Identity, Version
from disttrain.replica.leases import LostLeases
from disttrain.replica.work import WorkItem
from disttrain.transport.header import Role
from disttrain.transport.virtual_time import Bell
from simulation.world import (
    COORDINATOR,
    TICK_SECONDS,
    Life,
    PushName,
    Range,
    World,
    accuracy,
    updates_in,
)

_TEST_SAMPLES = 10


class SimReplica(Life):
    """One life of one replica: a thread that talks to the coordinator, and one that works."""

    def __init__(self, world: World, index: int) -> None:
        super().__init__(world, Role.REPLICA)
        self.index = index
        self.fetched = 0
        self._leases: deque[Lease] = deque()
        self._orders: deque[NumberedOrder] = deque()
        self._done: list[tuple[NumberedOrder, Result]] = []
        self._last_lease = 0
        self._may_ask = self._takes_work = True
        self._idle = False
        """The coordinator had no work."""
        self._accrued: list[Range] = []
        self._reached = Position()
        self._progress = Progress()
        self._steps = self._sequence = 0
        self._versions: tuple[Version, ...] = ()
        self._bell = Bell(world.network.time)
        self._control = ControlConnection(
            self.transport.connect(COORDINATOR),
            Role.REPLICA,
            1.0,
            self.transport.now,
            world.chance.random,
        )
        self._lost = LostLeases(lambda: self._control.lost_leases)
        self.run(self._talk)

    def _talk(self) -> None:
        joined = self._join()
        self.run(partial(self._work, joined))
        control, asked, answers = self._control, 0, set[int]()
        while not self.is_over or answers:
            if self._may_ask and not asked and len(self._leases) < 2:
                asked = control.request(self._request())
            done, self._done = self._done, []
            answers |= set(control.answer(done, self._report)) if done else set()
            received = control.poll(self._report, TICK_SECONDS)
            self._orders.extend(received.orders)
            answers -= received.replies.keys()
            reply = received.replies.get(asked)
            if isinstance(reply, messages.Work):
                asked = 0
                self._take_work(reply)
            if received.orders or received.replies:
                self._bell.ring()

    def _join(self) -> messages.Joined:
        join = messages.Join(
            role=Role.REPLICA,
            index=self.index,
            instance=f"replica-{self.pid}",
            pid=self.pid,
            layout=placements.of_lengths({placements.PARAMETERS: self.world.parameters}),
            train_samples=self.world.samples,
            test_samples=_TEST_SAMPLES,
        )
        return self._control.join(join, timeout=600.0)

    def _request(self) -> messages.RequestWork:
        return messages.RequestWork(
            member=self._control.member,
            held=len(self._leases),
            last_lease=self._last_lease,
            progress=self._known_progress(),
        )

    def _take_work(self, work: messages.Work) -> None:
        for lease in work.leases:
            if lease.id > self._last_lease and self._takes_work:
                self._leases.append(lease)
                self._last_lease = lease.id
        self._idle = not work.leases
        if not work.leases:
            self._may_ask = False
            after = max(work.after_seconds, 0.3)
            self.world.network.time.after(after, self._ask_again)

    def _ask_again(self) -> None:
        self._may_ask = self._takes_work

    def _report(self) -> ReplicaReport:
        return ReplicaReport(progress=self._known_progress(), steps=self._steps)

    def _known_progress(self) -> Progress:
        position = self._progress.position
        return Progress(
            position=position,
            samples=self._progress.samples,
            abandoned=self._lost.given_up(position),
        )

    def _work(self, joined: messages.Joined) -> None:
        placement = joined.placement
        assert placement is not None
        config = ClientConfig(
            transport=self.transport,
            identity=Identity(self.index, joined.member.incarnation),
            directory=lambda: self._control.latest.shards or (),
            placement=placement,
        )
        memory = self.transport.memory("replica")
        nbytes = 4 * self.world.parameters
        self._gradient = memory.allocate("gradient", nbytes)
        self._initial = memory.allocate("initial", nbytes)
        self._values = memory.allocate("values", nbytes)
        np.frombuffer(self._gradient.view, np.float32)[:] = 1.0
        self._pushes, self._fetches = PushClient(config), FetchClient(config)
        self.run(self._fetch_first)
        while not self.is_over:
            self._carry_out_orders()
            if self._leases and self.fetched:
                self._step(self._leases[0])
                continue
            if self._idle:
                self._push()
            self.world.network.time.wait(TICK_SECONDS, [self._bell])

    def _fetch_first(self) -> None:
        """Shards answer only when somebody has sent them values, which may be this process."""
        self._fetch()
        self._bell.ring()

    def _carry_out_orders(self) -> None:
        for order in list(self._orders):
            if self.fetched or not isinstance(order.order, orders.Evaluate):
                self._orders.remove(order)
                result = self._carry_out(order.order)
                self._done.append((order, result))
                self._control.channel.wake()

    def _step(self, lease: Lease) -> None:
        """One batch, unless its lease is lost."""
        first = self._reached.offset if self._reached.lease == lease.id else 0
        end = min(first + defaults.samples_per_step(self.world.job.spec), lease.samples)
        item = WorkItem(lease.id, lease.epoch, lease.portion, lease.first + first, end, [])
        if self._lost.skips(item, self._reached):
            self._leases.popleft()
            # What was computed of a lost lease counts once its push is answered.
            self._push()
            return
        self._fetch()
        chance = self.world.chance
        self.world.network.time.wait(self.world.step_seconds * chance.uniform(0.5, 2.0))
        self._accrued.append((lease.id, first, end))
        self._reached = item.position
        if end == lease.samples:
            self._leases.popleft()
        self._steps += 1
        if self._steps % self.world.push_every == 0:
            self._push()

    def _push(self) -> None:
        if not self._accrued:
            return
        self._sequence += 1
        ranges, self._accrued = tuple(self._accrued), []
        name = PushName(self.index, self._control.member.incarnation, self._sequence)
        self.world.pushed[name] = ranges
        samples = sum(end - first for _, first, end in ranges)
        self._pushes.push(
            Push(
                sequence=self._sequence,
                gradient=self._gradient,
                versions=self._versions,
                samples=samples,
                lease=self._reached.lease,
                lease_offset=self._reached.offset,
            )
        )
        self._progress = Progress(position=self._reached, samples=self._progress.samples + samples)

    def _fetch(self) -> int:
        """Updates in what was fetched."""
        self._versions = self._fetches.fetch({placements.PARAMETERS: self._values}).versions
        self.fetched += 1
        return updates_in(np.frombuffer(self._values.view, np.float32))

    def _carry_out(self, order: orders.Order) -> Result:
        match order:
            case orders.Upload():
                # Zeros, and not what was fetched last: values are to say which updates are in them.
                self._pushes.upload({placements.PARAMETERS: self._initial}, order.shards)
            case orders.Drain():
                self._takes_work = self._may_ask = False
                self._leases.clear()
                self._push()
                return orders.Drained(progress=self._known_progress())
            case orders.Evaluate():
                return self._evaluate(order.model_file)
            case orders.Export():
                export.export_named(order.checkpoint, order.out)
            case orders.End():
                self.end()
        return orders.Done()

    def _evaluate(self, file: str | None) -> Result:
        if file is None:
            updates = self._fetch()
        else:
            updates = updates_in(safetensors.numpy.load_file(file)["parameters"])
        self.world.network.time.wait(self.world.chance.uniform(0.1, 1.0))
        sums = {"accuracy": _TEST_SAMPLES * accuracy(updates)}
        return orders.Evaluated(sums=sums, samples=_TEST_SAMPLES, loss=1.0)
