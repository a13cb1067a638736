"""A replica that trains by itself for some steps, and pushes what these have changed."""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from disttrain.coordinator.protocol.fields import Position
from disttrain.job.length import UNKNOWN, Extent
from disttrain.job.strategies.local_steps import Adopt, LocalSteps
from disttrain.parameter_server.client import FetchResult, Push, Versions
from disttrain.replica import gradient_check
from disttrain.replica.agreement import Act
from disttrain.replica.connection import Connection
from disttrain.replica.fragment_schedule import FragmentSchedule
from disttrain.replica.inner_optimizer import OwnSteps
from disttrain.replica.ledger import Gradient, Kind
from disttrain.replica.ranks import SharedBatches
from disttrain.replica.stepper import Stepper
from disttrain.replica.training import Evaluate
from disttrain.replica.work import WorkItem
from disttrain.state.fragments import WHOLE, Fragment
from disttrain.state.placement import Range
from disttrain.task.loss import BatchLoss


class _Taken(NamedTuple):
    """A step that the parameters hold, and of which not every fragment is pushed yet."""

    samples: int
    position: Position


class LocalStepper(Stepper):
    """See `Stepper`.

    The anchor is what the next push is the difference to: the parameters fetched last, or, until
    those come that were asked for with the last push, this replica's own at that push. Each
    fragment has its own moment for that; without fragments, they are one.
    """

    def __init__(self, connection: Connection, manifest: LocalSteps, run: Extent = UNKNOWN) -> None:
        """`run`: how long the job is, for the schedule."""
        config = manifest.optimizer
        super().__init__(connection, manifest, config.clip_norm)
        self._schedule = FragmentSchedule(manifest.fragments)
        self._steps_to_a_push = manifest.steps // manifest.fragments
        seconds = math.inf if manifest.seconds is None else manifest.seconds
        self._seconds_to_a_push = seconds / manifest.fragments
        self._now = connection.cancellation.clock
        self._pushed_at = self._now()
        self._sends_parameters = manifest.outer.rule.sends_parameters
        self._maximum_norm = manifest.maximum_norm
        self._waits = manifest.adopt is Adopt.REPLACE
        self._own = OwnSteps(config, self._model, run)
        self._ranks: SharedBatches | None = None
        self._to_measure: Evaluate | None = None
        """Waits for the shards' values."""
        self._to_measure_since = 0
        """The latest push when it began to wait."""
        self._fetches_beside = False
        """What is fetched is to be measured, not to be computed with."""
        self._buffers_missed = False
        """What was measured came with buffers that may be newer than those computed with."""
        self._anchor = torch.zeros_like(self._model.parameters)
        self._anchored: list[Versions] = [()] * manifest.fragments
        """Of the shards, what the anchor is of in each fragment."""
        self._taken: deque[_Taken] = deque()
        self._since_push = 0
        """Steps, those included whose gradient was refused."""
        self._sequence = 0
        self._samples = 0

    def begin(self, fetched: FetchResult) -> None:
        super().begin(fetched)
        self._anchor.copy_(self._model.parameters)
        self._anchored = [fetched.versions] * len(self._anchored)

    @property
    def samples(self) -> int:
        return self._samples

    def begin_step(self) -> Tensor:
        return self._own.begin()

    def divide_among(self, ranks: SharedBatches) -> None:
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
            self._schedule.passed(position)
            self._end_early()
            return 0.0
        self._own.step(scale, count, self._samples)
        self._taken.append(_Taken(samples, position))
        self._schedule.step(samples, position)
        self._samples += samples
        return 1.0

    def push(self) -> None:
        self._since_push += 1
        if self._since_push >= self._steps_to_a_push or self._is_time:
            self._push([self._schedule.next])

    @property
    def _is_time(self) -> bool:
        if math.isinf(self._seconds_to_a_push):
            return False
        return self._agreement.any(self._now() - self._pushed_at >= self._seconds_to_a_push)

    def adopt(self, gradient: Tensor, scale: float, samples: int) -> None:
        """Take over what was fetched meanwhile. Ends the step."""
        del gradient, scale, samples
        if not self._fetches_beside:
            self._adopt(self._fetches.take())
        self.counters.steps += 1

    def measure(self, evaluate: Evaluate) -> None:
        """See `Training`: the values are fetched while the steps go on, into free memory.

        What this replica has not pushed is not in them, and stays as it is.
        """
        self.tell(Act.MEASURE)
        self._finish_measuring()
        self._to_measure, self._to_measure_since = evaluate, self._sequence
        self._go_on_measuring()

    def finish_measuring(self) -> None:
        self.tell(Act.FINISH_MEASURING)
        self._finish_measuring()

    def _finish_measuring(self) -> None:
        while self._to_measure is not None:
            self._go_on_measuring()
            self._adopt(self._wait_fetched())

    def between_steps(self) -> None:
        if self._fetches.is_asked or self._to_measure is not None:
            self.tell(Act.BETWEEN_STEPS)
            self._go_on_measuring()

    def _go_on_measuring(self) -> None:
        """The fetched values have one place, so what is measured waits for its turn.

        After a further push it takes it: where a fetch is longer than the steps, none is free.
        """
        has_waited = self._to_measure is not None and self._sequence > self._to_measure_since
        if has_waited and not self._fetches_beside:
            self._adopt(self._wait_fetched())
        self._adopt(self._fetches.take())
        if self._to_measure is not None and not self._fetches.is_asked:
            self.ledger.mark(Kind.FETCHING_BESIDE)
            self._fetch(self._evaluates, is_exact=True)
            self._fetches_beside = True

    def _forget_steps(self) -> None:
        """What is fetched next replaces them."""
        self._schedule.forget()
        self._taken.clear()
        self._since_push, self._pushed_at = 0, self._now()

    def _end_early(self) -> None:
        """The parameters may be no numbers either, and then each further step would be in vain."""
        if self._taken:
            self._since_push = self._steps_to_a_push

    def _start_pushing(self) -> None:
        self._push(self._schedule.unfinished)

    def _push(self, fragments: Sequence[Fragment]) -> None:
        """At most one push and its fetch are under way, so the anchor belongs to one of them."""
        self._since_push, self._pushed_at = 0, self._now()
        if not self._taken:
            # Also before `begin`: the first fetch is not this one's to take.
            self._schedule.forget()
            self._pushes.passed(self.position)
            return
        self._adopt(self._wait_fetched())
        for fragment in fragments:
            scale = self._make_difference(fragment)
            if scale == 0:
                self._give_up()
                self._ask(WHOLE, waits=True)
                return
            self._submit(fragment, scale)
        self._ask(fragments[0] if len(fragments) == 1 else WHOLE, waits=self._waits)

    def _wait_fetched(self) -> FetchResult | None:
        """What was asked for with the last push has that push in it."""
        self._pushes.wait_answered()
        return self._fetches.wait()

    def _runs(self, fragment: Fragment) -> tuple[Range, ...]:
        return fragment.runs(len(self._anchor))

    def _make_difference(self, fragment: Fragment) -> float:
        """The anchor becomes it; the factor that brings it to `maximumNorm`, 0: it is no number."""
        own = self._model.parameters
        if fragment != WHOLE and not self._is_usable(own):
            # The next step would spoil this fragment too.
            return 0.0
        # A fragment may have none of a partition's elements.
        squares = [gradient_check.squared_norm(own[:0])]
        squares += [
            gradient_check.squared_norm(self._anchor[part].sub_(own[part]))
            for part in _slices(self._runs(fragment))
        ]
        squared_norm = self._summed(torch.stack(squares).sum().item())
        return gradient_check.check(squared_norm, 0.0, self._maximum_norm)

    def _is_usable(self, values: Tensor) -> bool:
        squared_norm = self._summed(gradient_check.squared_norm(values).item())
        return gradient_check.check(squared_norm, 0.0, None) > 0

    def _summed(self, squared_norm: float) -> float:
        (found,) = self._agreement.judge((squared_norm,), self._pushes.answered)
        return found

    def _submit(self, fragment: Fragment, scale: float) -> None:
        outgoing, runs = self._pushes.acquire(), self._runs(fragment)
        if outgoing.rounding is not None:
            outgoing.rounding.scale, outgoing.rounding.runs = scale, runs
        own, sent = self._model.parameters, outgoing.gradient.tensor
        for part in _slices(runs):
            sent[part].copy_((own if self._sends_parameters else self._anchor)[part])
            self._anchor[part].copy_(own[part])
        self._sequence += 1
        turn = self._schedule.push(fragment)
        travels_as = self._model.vector.rounded(outgoing.rounded_to)
        push = Push(
            sequence=self._sequence,
            gradient=outgoing.gradient.buffer,
            fragment=fragment,
            fragment_bytes=fragment.nbytes(travels_as, len(own)),
            rounded_to=outgoing.rounded_to,
            versions=self._anchored[fragment.number],
            scale=scale,
            samples=turn.counted,
            local_steps=turn.steps,
            local_samples=turn.samples,
            lease=turn.position.lease,
            lease_offset=turn.position.offset,
            buffers={vector: flat.buffer for vector, flat in outgoing.buffers.vectors.items()},
        )
        while len(self._taken) > self._schedule.uncounted_steps:
            self._taken.popleft()
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
        self._schedule.forget()
        self._taken.clear()
        self._own.forget()
        if self._ranks is not None:
            self._ranks.forget()
        self._pushes.passed(self.position)

    def _ask(self, fragment: Fragment, *, waits: bool) -> None:
        """For the parameters with this push in them."""
        if waits:
            self._pushes.wait_answered()
            self._fetch(self.computes_on, fragment=fragment)
            self._adopt(self._fetches.wait())
            return
        self._fetch(self.computes_on, None, fragment)
        self._pushes.begin(self._fetches.due)

    def _adopt(self, fetched: FetchResult | None) -> bool:
        if fetched is None:
            return False
        if self._fetches_beside:
            self._measure(fetched)
            return False
        changed = fetched.buffers_changed or self._buffers_missed
        self._buffers_missed = False
        return super()._adopt(replace(fetched, buffers_changed=changed))

    def _measure(self, fetched: FetchResult) -> None:
        """Afterwards the next step computes with the bits that it would have had."""
        evaluate, self._to_measure = self._to_measure, None
        self._fetches_beside = False
        self._buffers_missed |= fetched.buffers_changed
        self._adopted += 1
        self.ledger.mark(Kind.MEASURED, self._adopted)
        if evaluate is not None:
            with self._model.showing_fetched():
                evaluate(partial(self._checked, fetched.versions))
                self.tell(Act.MEASURED)

    def _checked(self, versions: Versions) -> Versions:
        """Raises ModelError if a frozen parameter has changed."""
        self._frozen.check()
        return versions

    def _take_over(self, fetched: FetchResult) -> None:
        schedule, runs = self._schedule, self._runs(fetched.fragment)
        is_whole = fetched.fragment == WHOLE
        taken = schedule.fragments if is_whole else (fetched.fragment,)
        for fragment in taken:
            self._anchored[fragment.number] = fetched.versions
        if any(schedule.has_new_steps(fragment) for fragment in taken):
            # Nothing writes to the only push's memory before the next one.
            pushed = self._model.outgoing[0].buffers if fetched.buffers_changed else None
            self._model.adopt_change(runs, self._anchor, pushed)
            return
        if is_whole:
            self._model.adopt(buffers=fetched.buffers_changed)
        else:
            self._model.adopt_part(runs, buffers=fetched.buffers_changed)
        for part in _slices(runs):
            self._anchor[part].copy_(self._model.parameters[part])

    def _compute_with(self, fetched: FetchResult) -> None:
        super()._compute_with(fetched)
        if self._ranks is not None:
            self._ranks.renew()
        self._samples = fetched.samples + self._schedule.uncounted_samples


def _slices(runs: Iterable[Range]) -> Iterator[slice]:
    return (slice(run.first, run.end) for run in runs)
