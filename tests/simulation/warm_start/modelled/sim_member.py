"""What simulated shards and replicas have in common: requests that are repeated, heartbeats."""

from collections.abc import Callable

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.orders import NumberedOrder, Result
from simulation.clockwork import Process
from simulation.warm_start.modelled.sim_coordinator import SimCoordinator
from simulation.warm_start.modelled.world import World

RETRY_SECONDS = 1.0
HEARTBEAT_SECONDS = 1.0


class SimMember(Process):
    """One life."""

    def __init__(self, world: World, coordinator: SimCoordinator) -> None:
        super().__init__()
        self.world = world
        self.coordinator = coordinator
        self.pid = world.new_pid()
        self.member: MemberId | None = None
        self.ended = False
        self.epoch = 0
        """Of the members that it has heard of."""
        self._seen: set[int] = set()

    def request(self, request: messages.Request, done: Callable[[messages.Reply], None]) -> None:
        """Sends until there is an answer, which is taken once."""
        answered: list[bool] = []

        def take(reply: messages.Reply) -> None:
            if answered:
                return
            answered.append(True)
            if isinstance(reply, messages.Refused):
                self.refused()
            else:
                done(reply)

        def send() -> None:
            if answered:
                return
            if self.member is not None:
                self.coordinator.listen(self.member, self, self)
            world, coordinator = self.world, self.coordinator
            world.clock.send(coordinator.process, lambda: coordinator.request(request, self, take))
            world.clock.after(RETRY_SECONDS, self, send)

        send()

    def refused(self) -> None:
        """Fenced, or too late: the process ends."""
        self.alive = False

    def beat(self) -> None:
        """The heartbeats."""

        def again(reply: messages.Reply) -> None:
            if isinstance(reply, messages.HeartbeatReply):
                self.take_orders(reply.orders)
                self.heard(reply)
            if not self.ended:
                self.world.clock.after(HEARTBEAT_SECONDS, self, self.beat)

        self.request(self.heartbeat(), again)

    def heartbeat(self) -> messages.Heartbeat:
        raise NotImplementedError

    def heard(self, reply: messages.HeartbeatReply) -> None:
        """What a heartbeat's reply says, or comes unasked."""

    def take_orders(self, orders: tuple[NumberedOrder, ...]) -> None:
        for order in orders:
            if order.id not in self._seen:
                self._seen.add(order.id)
                self.obey(order)

    def obey(self, order: NumberedOrder) -> None:
        raise NotImplementedError

    def answer(self, order: NumberedOrder, result: Result) -> None:
        assert self.member is not None
        done = messages.OrderDone(member=self.member, order=order.id, result=result)
        self.request(done, lambda _: None)
