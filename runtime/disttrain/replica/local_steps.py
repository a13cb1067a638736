"""A replica that trains by itself for some steps, and pushes what these have changed."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from disttrain.coordinator.protocol.fields import Position
from disttrain.job.length import UNKNOWN, Extent
from disttrain.job.strategies.local_steps import Adopt, LocalSteps
from disttrain.parameter_server.client import FetchResult, Push
from disttrain.replica import gradient_check
from disttrain.replica.connection import Connection
from disttrain.replica.inner_optimizer import OwnSteps
from disttrain.replica.ledger import Gradient
from disttrain.replica.ranks import LeadingRank
from disttrain.replica.stepper import Stepper
from disttrain.replica.work import WorkItem
from disttrain.task.loss import BatchLoss


class _Taken(NamedTuple):
    """A step that the parameters hold and no push does yet."""

    samples: int
    position: Position


class LocalStepper(Stepper):
    """See `Stepper`.

    The anchor is what the next push is the difference to: the parameters fetched last, or, until
    those come that were asked for with the last push, this replica's own at that push.
    """

    def __init__(self, connection: Connection, manifest: LocalSteps, run: Extent = UNKNOWN) -> None:
        """`run`: how long the job is, for the schedule."""
        config = manifest.optimizer
        super().__init__(connection, manifest, config.clip_norm)
        self._steps_in_a_push = manifest.steps
        self._seconds_to_a_push = math.inf if manifest.seconds is None else manifest.seconds
        self._now = connection.cancellation.clock
        self._pushed_at = self._now()
        self._sends_parameters = manifest.outer.rule.sends_parameters
        self._maximum_norm = manifest.maximum_norm
        self._waits = manifest.adopt is Adopt.REPLACE
        self._own = OwnSteps(config, self._model, run)
        self._ranks: LeadingRank | None = None
        self._anchor = torch.zeros_like(self._model.parameters)
        self._taken: list[_Taken] = []
        self._since_push = 0
        """Steps, those included whose gradient was refused."""
        self._sequence = 0
        self._samples = 0

    def begin(self, fetched: FetchResult) -> None:
        super().begin(fetched)
        self._anchor.copy_(self._model.parameters)

    @property
    def samples(self) -> int:
        return self._samples

    def begin_step(self) -> Tensor:
        return self._own.begin()

    def divide_among(self, ranks: LeadingRank) -> None:
        self._ranks = ranks

    def announce(self, item: WorkItem) -> None:
        if self._ranks is not None:
            self._ranks.announce(item, self._samples)

    def accrue(
        self, gradient: Tensor, loss: BatchLoss | None, samples: int, position: Position
    ) -> float:
        """Take a step of the replica's own; see `Stepper`."""
        self._own.gather()
        if self._ranks is not None:
            loss = self._ranks.average(gradient, loss, samples, self._own.present)
        self._frozen.check_after(self.counters.steps + 1)
        scale, count = self._judge(gradient, loss, samples, position)
        self.position = position
        if scale == 0:
            self._end_early()
            return 0.0
        self._own.step(scale, count, self._samples)
        self._taken.append(_Taken(samples, position))
        self._samples += samples
        return 1.0

    def push(self) -> None:
        self._since_push += 1
        seconds = self._now() - self._pushed_at
        if self._since_push >= self._steps_in_a_push or seconds >= self._seconds_to_a_push:
            self._start_pushing()

    def adopt(self, gradient: Tensor, scale: float, samples: int) -> None:
        """Take over what was fetched meanwhile. Ends the step."""
        del gradient, scale, samples
        self._adopt(self._fetches.take())
        self.counters.steps += 1

    def _forget_steps(self) -> None:
        """What is fetched next replaces them."""
        self._taken.clear()
        self._since_push, self._pushed_at = 0, self._now()

    def _end_early(self) -> None:
        """The parameters may be no numbers either, and then each further step would be in vain."""
        if self._taken:
            self._since_push = self._steps_in_a_push

    def _start_pushing(self) -> None:
        """At most one push and its fetch are under way, so the anchor belongs to one of them."""
        self._since_push, self._pushed_at = 0, self._now()
        if not self._taken:
            # Also before `begin`: the first fetch is not this one's to take.
            self._pushes.passed(self.position)
            return
        self._pushes.wait_answered()
        self._adopt(self._fetches.wait())
        scale = self._make_difference()
        if scale > 0:
            self._submit(scale)
        else:
            self._give_up()
        self._taken.clear()
        self._computed_on = ()
        self._ask(waits=self._waits or scale == 0)

    def _make_difference(self) -> float:
        """The anchor becomes it; the factor that brings it to `maximumNorm`, 0: it is no number."""
        difference = self._anchor.sub_(self._model.parameters)
        squared_norm = gradient_check.squared_norm(difference).item()
        return gradient_check.check(squared_norm, 0.0, self._maximum_norm)

    def _submit(self, scale: float) -> None:
        outgoing = self._pushes.acquire()
        if outgoing.rounding is not None:
            outgoing.rounding.scale = scale
        difference, own = self._anchor, self._model.parameters
        outgoing.gradient.tensor.copy_(own if self._sends_parameters else difference)
        self._anchor.copy_(own)
        self._sequence += 1
        push = Push(
            sequence=self._sequence,
            gradient=outgoing.gradient.buffer,
            rounded_to=outgoing.rounded_to,
            versions=self._computed_on,
            scale=scale,
            samples=sum(step.samples for step in self._taken),
            lease=self.position.lease,
            lease_offset=self.position.offset,
            buffers={vector: flat.buffer for vector, flat in outgoing.buffers.vectors.items()},
        )
        self._pushes.submit(outgoing, push)

    def _give_up(self) -> None:
        """The steps have left the range of numbers: none is pushed, and the optimizer begins anew.

        They count as one gradient that is not finite, and are recorded with the same step. The
        parameters are replaced by those of the shards before the next one.
        """
        for samples, position in self._taken:
            number = self.counters.steps
            lost = Gradient(number, samples, 0.0, 0.0, is_finite=False)
            self.ledger.computed(lost, position)
            self._count_not_finite(position)
        self._own.forget()
        if self._ranks is not None:
            self._ranks.forget()
        self._pushes.passed(self.position)

    def _ask(self, *, waits: bool) -> None:
        """For the parameters with this push in them."""
        if waits:
            self._pushes.wait_answered()
            self._fetch(self.computes_on)
            self._adopt(self._fetches.wait())
            return
        self._fetch(self.computes_on, None)
        self._pushes.begin(self._fetches.due)

    def _take_over(self, fetched: FetchResult) -> None:
        if self._taken:
            # Nothing writes to the only push's memory before the next one.
            pushed = self._model.outgoing[0].buffers if fetched.buffers_changed else None
            self._model.adopt_change(self._anchor, pushed)
            self._computed_on = fetched.versions
            return
        self._model.adopt(buffers=fetched.buffers_changed)
        self._anchor.copy_(self._model.parameters)

    def _compute_with(self, fetched: FetchResult) -> None:
        super()._compute_with(fetched)
        if self._ranks is not None:
            self._ranks.renew()
        self._samples = fetched.samples + sum(step.samples for step in self._taken)
