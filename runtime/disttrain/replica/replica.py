"""One life of a replica: take over the shards' values, train, carry out orders, end."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import wait

from disttrain.coordinator.errors import MemberFenced
from disttrain.coordinator.protocol.fields import Progress
from disttrain.coordinator.protocol.messages import Joined, Leave
from disttrain.coordinator.protocol.orders import (
    Checkpoint,
    End,
    Evaluate,
    LeaveWarmStart,
    NumberedOrder,
)
from disttrain.launch.exit_code import ExitCode
from disttrain.parameter_server.errors import Fenced
from disttrain.replica.halt import Halted
from disttrain.replica.membership import Membership
from disttrain.replica.orders import Orders
from disttrain.replica.prepared import Prepared
from disttrain.replica.training import Stages
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_ORDER_SECONDS = 0.01
_WANT_VALUES = (Checkpoint, Evaluate, LeaveWarmStart)
_HEARD_SECONDS = 5.0
"""The coordinator has so long to answer a leave notice, then its next life reads it as a file."""


class Replica:
    """Belongs to the compute thread, but for `leave`."""

    def __init__(
        self, prepared: Prepared, membership: Membership, joined: Joined, training: Stages
    ) -> None:
        self._membership = membership
        self._coordinator = membership.coordinator
        self._member = joined.member
        self._training = training
        self._halt = membership.halt
        self._exit_code: ExitCode | None = None
        self._leaving = False
        self._has_begun = False
        self._postponed: list[NumberedOrder] = []
        self._orders = Orders(prepared, training, membership.upload)

    def leave(self, patience_seconds: float) -> None:
        """End after the current step; the rest of the work goes to others. For signal handlers.

        A shard that is away keeps this process for so long at most.
        """
        self._leaving = True
        impatience = threading.Timer(patience_seconds, self._halt.say)
        impatience.daemon = True
        impatience.start()

    def run(self) -> ExitCode:
        """Train until told to end; RESTART if this life was declared dead.

        Raises what ended one of the threads.
        """
        try:
            self._train()
            return self._say_goodbye() if self._exit_code is None else self._exit_code
        except (Fenced, MemberFenced) as error:
            LOG.warning("was declared dead", incarnation=self._member.incarnation, error=error)
            return ExitCode.RESTART
        except Halted:
            self._look_for_end()
            if self._exit_code is not None:
                return self._exit_code
            LOG.warning("left without an answer to its last pushes")
            # How far it came, the shards will tell.
            self._leave_notice(None)
            return ExitCode.INTERRUPTED

    def _train(self) -> None:
        try:
            self._training.begin(self._wait_for_order)
        except _Ended:
            return
        self._has_begun = True
        LOG.info("trains", incarnation=self._member.incarnation)
        self._training.train_until(self._ends)

    def _ends(self) -> bool:
        self._carry_out_orders()
        return self._leaving or self._exit_code is not None

    def _wait_for_order(self) -> None:
        if self._ends():
            raise _Ended
        time.sleep(_ORDER_SECONDS)

    def _carry_out_orders(self) -> None:
        for numbered in self._orders_now():
            self._carry_out(numbered)

    def _carry_out(self, numbered: NumberedOrder) -> None:
        self._coordinator.answer(numbered, self._orders.carry_out(numbered.order))
        if isinstance(numbered.order, Evaluate) and numbered.order.model_file is None:
            self._training.now.evaluated()
        if isinstance(numbered.order, End):
            self._exit_code = ExitCode.COMPLETE if numbered.id else ExitCode.RESTART

    def _look_for_end(self) -> None:
        """Carry out an End that came while this thread waited; what else came is over with it."""
        while not self._coordinator.orders.empty():
            numbered = self._coordinator.orders.get()
            if isinstance(numbered.order, End):
                self._carry_out(numbered)

    def _orders_now(self) -> Iterator[NumberedOrder]:
        """What is to be carried out now; what needs the first values has to wait for them."""
        if self._has_begun:
            yield from self._postponed
            self._postponed.clear()
        while not self._coordinator.orders.empty():
            numbered = self._coordinator.orders.get()
            if self._has_begun or not isinstance(numbered.order, _WANT_VALUES):
                yield numbered
            else:
                self._postponed.append(numbered)

    def _say_goodbye(self) -> ExitCode:
        self._training.now.drain()
        progress = self._training.progress()
        if self._membership.connection is not None:
            self._membership.connection.ledger.left()
        self._leave_notice(progress)
        LOG.info("left", samples=progress.samples)
        return ExitCode.INTERRUPTED

    def _leave_notice(self, progress: Progress | None) -> None:
        leave = Leave(member=self._member, reason="SIGTERM", progress=progress)
        answer = self._coordinator.request(leave)
        if wait([answer], _HEARD_SECONDS).not_done:
            self._membership.leave_notices.write(leave)


class _Ended(Exception):
    """Told to end before the first step."""
