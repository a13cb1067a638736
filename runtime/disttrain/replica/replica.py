"""One life of a replica: join, take over the shards' values, train, carry out orders, end."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from functools import partial
from typing import Any

from torch import Tensor

from disttrain.coordinator.errors import MemberFenced
from disttrain.coordinator.leases import permutation
from disttrain.coordinator.protocol import farewells
from disttrain.coordinator.protocol.fields import Progress
from disttrain.coordinator.protocol.messages import Joined, Leave
from disttrain.coordinator.protocol.orders import End, Evaluate, NumberedOrder
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.job import defaults
from disttrain.job.spec import Spec
from disttrain.launch.exit_code import ExitCode
from disttrain.parameter_server.errors import Fenced
from disttrain.replica import device, downpour, report
from disttrain.replica.connection import Connection
from disttrain.replica.downpour import Downpour
from disttrain.replica.halt import Halt, Halted
from disttrain.replica.leases import LeaseSource
from disttrain.replica.loop import TrainingLoop
from disttrain.replica.lost_leases import LostLeases
from disttrain.replica.membership import Membership
from disttrain.replica.orders import Abilities, Orders
from disttrain.replica.pipeline import Pipeline, PipelineConfig
from disttrain.replica.prepared import Prepared
from disttrain.replica.work import Cutting
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_ORDER_SECONDS = 0.01
_HEARD_SECONDS = 5.0
"""How long the coordinator has to answer a farewell before it is written down for its next life."""


class Replica:
    """Belongs to the compute thread, but for `report` and `leave`."""

    def __init__(
        self,
        spec: Spec,
        prepared: Prepared,
        membership: Membership,
        joined: Joined,
        connection: Connection,
    ) -> None:
        self._coordinator = coordinator = membership.coordinator
        self._farewells = membership.farewells
        self._member = joined.member
        self._connection = connection
        self._halt = membership.halt
        self._exit_code: ExitCode | None = None
        self._leaving = False
        self._has_begun = False
        self._postponed: list[NumberedOrder] = []

        loss = _loss_on_device(prepared)
        self._downpour = Downpour(connection, downpour.from_spec(spec))
        self._lost = LostLeases(lambda: coordinator.lost_leases)
        source = LeaseSource(coordinator, joined.member, self._progress, membership.halt)
        pipeline = _pipeline(spec, prepared, joined, source, membership.halt)
        self._loop = TrainingLoop(self._downpour, loss, pipeline, source, self._lost, joined.seed)
        self._orders = self._orders_for(prepared)

    def report(self) -> ReplicaReport:
        """The counters as they are now."""
        pushes, fetches = self._connection.pushes, self._connection.fetches
        return report.replica_report(self._downpour.counters, pushes, fetches, self._lost)

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
            LOG.warning("left without an answer to its last pushes")
            # How far it came, the shards will tell.
            self._say_farewell(None)
            return ExitCode.INTERRUPTED

    def _orders_for(self, prepared: Prepared) -> Orders:
        abilities = Abilities(
            upload=self._connection.upload, fetch_now=self._downpour.fetch_now, drain=self._drain
        )
        return Orders(prepared.task, prepared.model, prepared.device, abilities)

    def _train(self) -> None:
        try:
            self._downpour.begin(self._connection.first_fetch(meanwhile=self._wait_for_order))
        except _Ended:
            return
        self._has_begun = True
        LOG.info("trains", incarnation=self._member.incarnation)
        self._loop.train_until(self._ends)

    def _ends(self) -> bool:
        self._carry_out_orders()
        return self._leaving or self._exit_code is not None

    def _wait_for_order(self) -> None:
        if self._ends():
            raise _Ended
        time.sleep(_ORDER_SECONDS)

    def _carry_out_orders(self) -> None:
        for numbered in self._orders_now():
            self._coordinator.answer(numbered, self._orders.carry_out(numbered.order))
            if isinstance(numbered.order, Evaluate) and numbered.order.model_file is None:
                # The others went on meanwhile: the next gradient would be of values as old as the
                # evaluation was long.
                self._downpour.fetch_now()
            if isinstance(numbered.order, End):
                self._exit_code = ExitCode.COMPLETE if numbered.id else ExitCode.RESTART

    def _orders_now(self) -> Iterator[NumberedOrder]:
        """What is to be carried out now; an evaluation has to wait for the first values."""
        if self._has_begun:
            yield from self._postponed
            self._postponed.clear()
        while not self._coordinator.orders.empty():
            numbered = self._coordinator.orders.get()
            if self._has_begun or not isinstance(numbered.order, Evaluate):
                yield numbered
            else:
                self._postponed.append(numbered)

    def _drain(self) -> Progress:
        self._loop.drain()
        return self._progress()

    def _progress(self) -> Progress:
        return report.progress(self._connection.pushes, self._lost)

    def _say_goodbye(self) -> ExitCode:
        progress = self._drain()
        self._connection.ledger.left()
        self._say_farewell(progress)
        LOG.info("left", samples=progress.samples)
        return ExitCode.INTERRUPTED

    def _say_farewell(self, progress: Progress | None) -> None:
        leave = Leave(member=self._member, reason="SIGTERM", progress=progress)
        answer = self._coordinator.request(leave)
        if wait([answer], _HEARD_SECONDS).not_done:
            farewells.write(self._farewells, leave)


class _Ended(Exception):
    """Told to end before the first step."""


def _loss_on_device(prepared: Prepared) -> Callable[[Any], Tensor]:
    """The task's loss of a batch, which is moved to the model's device first."""
    place = device.mover(prepared.device)
    return lambda batch: prepared.task.loss(prepared.model, place(batch))


def _pipeline(
    spec: Spec, prepared: Prepared, joined: Joined, source: LeaseSource, halt: Halt
) -> Pipeline:
    wanted = prepared.task.input_pipeline()
    config = PipelineConfig(
        workers=wanted.workers,
        prefetch=wanted.prefetch,
        pin_memory=prepared.device.type == "cuda",
        seed=joined.seed,
    )
    indices = partial(
        permutation.portion_indices, joined.seed, prepared.train.count, joined.portion_size
    )
    cutting = Cutting(batch_size=defaults.samples_per_step(spec), portion_indices=indices)
    return Pipeline(prepared.train.dataset, prepared.task.collate, source, cutting, config, halt)
