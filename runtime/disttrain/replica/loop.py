"""The training loop: Downpour SGD's client, Algorithm 1.1 of DistBelief's appendix."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from disttrain.coordinator.fields import START
from disttrain.parameter_server.client import FetchResult
from disttrain.replica import gradient_check, seeding
from disttrain.replica.accrual import Accrual, EveryStep, SeveralSteps
from disttrain.replica.exchange import Versions
from disttrain.replica.fetch_thread import FetchThread
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.gradient_check import Verdict
from disttrain.replica.ledger import SILENT, Kind, Ledger
from disttrain.replica.pipeline import Loaded
from disttrain.replica.push_thread import Departure, PushThread
from disttrain.replica.work import WorkItem


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopConfig:
    """How a replica trains."""

    push_every: int = 1
    fetch_every: int = 1
    waits_for_answers: bool = False
    """maxInFlight is 0: wait for each push's answer and for the fetch that follows."""
    local_learning_rate: float = 0.0
    """Of the steps between fetches."""
    clip_norm: float | None = None
    seed: int = 0


@dataclass(slots=True)
class Counters:
    """What the loop did since the process started; written by the compute thread only."""

    steps: int = 0
    loss_sum: float = 0.0
    loss_steps: int = 0
    non_finite: int = 0
    non_finite_lease: int = 0
    step_seconds: float = 0.0
    data_seconds: float = 0.0


class TrainingLoop:
    """One step after the other. Everything here belongs to the compute thread."""

    def __init__(
        self,
        model: FlatModel,
        loss: Callable[[Any], Tensor],
        pushes: PushThread,
        fetches: FetchThread,
        config: LoopConfig,
        ledger: Ledger = SILENT,
    ) -> None:
        self._model = model
        self._loss = loss
        self._pushes = pushes
        self._fetches = fetches
        self._config = config
        self._ledger = ledger
        self._accrual: Accrual = (
            EveryStep(model, pushes) if config.push_every == 1 else SeveralSteps(model, pushes)
        )
        self.position = START
        """Of the last batch."""
        self._versions: Versions = ()
        self._computed_on: Versions = ()
        self._adopted = 0
        self.counters = Counters()

    def step(self, loaded: Loaded) -> None:
        """Process one batch."""
        began = time.perf_counter()
        config, step = self._config, self.counters.steps

        if step % config.fetch_every == 0:
            self._start_fetching()

        gradient = self._accrual.begin_step()
        verdict = self._compute_gradient(loaded, gradient)
        if verdict.finite:
            self._accrual.accrue(verdict, len(loaded.item.indices))
        self.position = loaded.item.position

        if step % config.push_every == 0:
            self._start_pushing()
        if not self._adopt_fetched():
            self._step_locally(gradient, verdict)

        self.counters.steps += 1
        self.counters.step_seconds += time.perf_counter() - began

    def begin(self, versions: Versions) -> None:
        """Say which versions the model's values are of, before the first step."""
        self._versions = versions
        self._adopted = 1

    def flush(self) -> None:
        """Push what is accrued and wait until every shard has answered everything."""
        self._ledger.mark(Kind.FLUSHED)
        self._start_pushing()
        self._pushes.wait_answered()

    def fetch_now(self) -> Versions:
        """Compute with freshly fetched parameters from now on; their versions."""
        self._ledger.mark(Kind.FETCHING_NOW)
        self._adopt(self._fetches.wait())
        self._fetches.ask(self._model.fetch_into, self._model.land)
        self._adopt(self._fetches.wait())
        return self._versions

    def _start_fetching(self) -> None:
        self._fetches.ask(self._model.fetch_into, self._model.land)
        if self._config.waits_for_answers:
            self._adopt(self._fetches.wait())

    def _compute_gradient(self, loaded: Loaded, gradient: Tensor) -> Verdict:
        item = loaded.item
        if item.lease != self.position.lease:
            self._ledger.lease_begun(item)
        seeding.seed_step(
            seeding.batch_seed(self._config.seed, item.epoch, item.portion, item.first)
        )
        loss = self._loss(loaded.batch)
        loss.backward()  # type: ignore[no-untyped-call]
        squared_norm = torch.dot(gradient, gradient).item()
        return self._judge(squared_norm, loss.item(), item)

    def _judge(self, squared_norm: float, loss: float, item: WorkItem) -> Verdict:
        verdict = gradient_check.check(squared_norm, loss, self._config.clip_norm)
        step = self.counters.steps
        if verdict.finite:
            self._ledger.stepped(step, item, loss, squared_norm)
            self.counters.loss_sum += loss
            self.counters.loss_steps += 1
            self._computed_on = self._computed_on or self._versions
        else:
            self._ledger.not_finite(step, item, loss, squared_norm)
            self.counters.non_finite += 1
            self.counters.non_finite_lease = item.lease
        return verdict

    def _start_pushing(self) -> None:
        accrued = self._accrual.take()
        if accrued is None:
            self._pushes.submit(Departure(outgoing=None, position=self.position))
            return
        departure = Departure(
            outgoing=accrued.outgoing,
            position=self.position,
            samples=accrued.samples,
            scale=accrued.scale,
            versions=self._computed_on,
        )
        self._computed_on = ()
        self._pushes.submit(departure)
        if self._config.waits_for_answers:
            self._pushes.wait_answered()

    def _adopt_fetched(self) -> bool:
        """Whether the next step computes with fetched parameters, which replace a local step."""
        if self._config.waits_for_answers:
            return (self.counters.steps + 1) % self._config.fetch_every == 0
        return self._adopt(self._fetches.take())

    def _adopt(self, fetched: FetchResult | None) -> bool:
        if fetched is None:
            return False
        self._adopted += 1
        self._ledger.mark(Kind.ADOPTED, self._adopted)
        self._model.adopt(buffers=fetched.buffers_changed)
        self._versions = fetched.versions
        return True

    def _step_locally(self, gradient: Tensor, verdict: Verdict) -> None:
        rate = self._config.local_learning_rate
        if rate > 0 and verdict.finite:
            self._model.parameters.add_(gradient, alpha=-rate * verdict.scale)
