"""Joins a plain PyTorch training loop to a running job: an optimizer that pushes and fetches.

with disttrain.DownpourOptimizer(model, "runs/digits") as optimizer:
    for x, y in batches:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from disttrain.coordinator.errors import JobOver
from disttrain.coordinator.protocol.commands import (
    Command,
    CommandFailed,
    Done,
    Drain,
    Drained,
    End,
    Result,
    Upload,
)
from disttrain.coordinator.protocol.fields import START
from disttrain.coordinator.protocol.messages import Join, Leave
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.job import defaults, names
from disttrain.launch import config as launch_config
from disttrain.launch import outcome
from disttrain.launch.run_folder import RunFolder
from disttrain.replica import accrual, model_tensors
from disttrain.replica.downpour import Downpour
from disttrain.replica.errors import JobEnded, WrongStrategy
from disttrain.replica.membership import Membership, Trained
from disttrain.replica.work import LostLeases
from disttrain.telemetry import logs
from disttrain.transport.header import Role

LOG = logs.get(__name__)

_LOOK_AGAIN_SECONDS = 0.01


class DownpourOptimizer(torch.optim.Optimizer):
    """Takes the place of an optimizer of torch.optim; the update rule is the job's, on its shards.

    The loop keeps its own data: its samples are no part of the job's epochs. The parameters become
    views of flat vectors, and take the shards' values at once. Use it from one thread, and close
    it, best by `with`.
    """

    def __init__(
        self, model: nn.Module, run: str | os.PathLike[str], *, batch_size: int | None = None
    ) -> None:
        """Join the job whose output folder is `run`; waits until its shards have values.

        `batch_size`: samples per step, at most the job's, which is the default. Raises ValueError
        for more, InvalidLaunchConfig without a job there, JobEnded for one that nobody runs any
        more, WrongStrategy for one that is not of downpour, ModelNotSupported, and NotJoined for a
        model that is not the job's.
        """
        self._folder = folder = RunFolder(Path(run).resolve())
        config = launch_config.read(folder.config(names.Role.REPLICA))
        _require_running(folder)
        self._spec = config.job.spec
        if self._spec.strategy.downpour is None:
            message = f"the job in {folder.path} gives out portions: a loop of its own has no part"
            raise WrongStrategy(message)
        most = defaults.samples_per_step(self._spec)
        self._samples = most if batch_size is None else batch_size
        if batch_size is not None and not 0 < batch_size <= most:
            message = (
                f"batch_size: must be 1 to {most}, which is the job's spec.batchSize, got "
                f"{batch_size}; set spec.batchSize to the largest batch of the loop"
            )
            raise ValueError(message)
        self._ended = ""
        self._closed = False
        self._joined = False
        self._gradient: Tensor | None = None
        self._lost = LostLeases(frozenset)
        self._membership = Membership(config)
        try:
            self._connect(model)
        except BaseException:
            self._membership.close()
            raise

    @property
    def replica_index(self) -> int:
        """Index of this loop among the job's replicas, as in logs and status."""
        return self._member.index

    @property
    def ended(self) -> bool:
        """Whether the job is over; then the last `step` raised JobEnded."""
        return bool(self._ended)

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002
        """Begin a step: all gradients are zero, whatever `set_to_none` says."""
        if self._gradient is None:
            self._gradient = self._downpour.begin_step()
        self._gradient.zero_()
        self._connection.model.attach_gradients()

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:  # type: ignore[override]
        """Push the gradients, and compute with what was fetched from now on.

        Waits if all pushes that may be under way are unanswered, and for the answer and fresh
        parameters while that is short beside a step: see `pace`. A gradient that is not finite is
        dropped and counted. Raises JobEnded, and what ended the connection.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        model = self._connection.model
        gradients = [parameter.grad for parameter in model.trainable]
        if self._gradient is None:
            self._gradient = self._downpour.begin_step()
        model.gather_gradients(gradients)
        scale = self._downpour.accrue(self._gradient, None, self._samples, START)
        self._downpour.push()
        self._downpour.adopt(self._gradient, scale, self._samples)
        # What backward adds before the next `zero_grad` must not reach a gradient on its way.
        self._gradient = None
        model.detach_gradients()
        if self._downpour.was_too_stale:
            # What was refused is lost: a loop of one's own has no leases to give back.
            self._downpour.start_over()
        self._carry_out_commands()
        return loss

    def close(self) -> None:
        """Push what is accrued, leave the job, and end the connection. May be called again."""
        if self._closed:
            return
        self._closed = True
        try:
            if not self._ended:
                self._downpour.flush()
                self._leave()
        finally:
            self._membership.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self, model: nn.Module) -> None:
        try:
            joined = self._membership.join(self._join(model), self._report, self._still_waiting)
        except JobOver as error:
            raise JobEnded(str(error)) from error
        self._member = joined.member
        manifest = self._spec.strategy.only_downpour
        trained = Trained(model, next(model.parameters()).device)
        buffers = accrual.gradient_buffers(manifest)
        log = self._membership.open_ledger(joined)
        self._connection = self._membership.connect(joined, trained, buffers, log)
        super().__init__(self._connection.model.trainable, {})
        run = defaults.extent(self._spec, joined.train_samples)
        self._downpour = Downpour(self._connection, manifest, self._spec.replicas.count, run=run)
        self._joined = True
        fetched = self._connection.first_fetch(self._wait_for_command, self._downpour.computes_on)
        self._downpour.begin(fetched)

    def _join(self, model: nn.Module) -> Join:
        return Join(
            role=Role.REPLICA,
            index=None,
            instance=self._membership.config.new_instance(),
            pid=os.getpid(),
            layout=model_tensors.describe(model, frozen=self._spec.task.frozen).with_hash().layout,
        )

    def _still_waiting(self) -> None:
        _require_running(self._folder)
        # A warning, as Python prints no less where a loop of one's own configures no logs.
        LOG.warning("waiting for the run's coordinator to answer", folder=self._folder.path)

    def _leave(self) -> None:
        done = self._downpour.progress(self._lost)
        leave = Leave(member=self._member, reason="the loop ended", progress=done)
        self._membership.coordinator.request(leave)

    def _report(self) -> ReplicaReport:
        if not self._joined:
            return ReplicaReport()
        return self._downpour.report(self._lost)

    def _wait_for_command(self) -> None:
        self._carry_out_commands()
        time.sleep(_LOOK_AGAIN_SECONDS)

    def _carry_out_commands(self) -> None:
        commands = self._membership.coordinator.commands
        while not commands.empty():
            numbered = commands.get()
            self._membership.coordinator.answer(numbered, self._carry_out(numbered.order))
        if self._ended:
            message = f"the job is over: {self._ended}"
            raise JobEnded(message)

    def _carry_out(self, command: Command) -> Result:
        match command:
            case Upload():
                self._connection.upload(command.shards)
            case Drain():
                self._downpour.flush()
                self._ended = "it takes no more gradients"
                return Drained(progress=self._downpour.progress(self._lost))
            case End():
                self._ended = command.reason
            case _:
                return CommandFailed(message=f"'{command.kind}': this replica is a loop of its own")
        return Done()


def _require_running(folder: RunFolder) -> None:
    """Raise JobEnded for a run that has ended, or whose launcher is no more."""
    if (ended := outcome.read_summary(folder.summary)) is not None:
        how = f"{ended.result} ({ended.reason})" if ended.reason else ended.result
        message = f"the run in {folder.path} has ended: {how}; join one that runs"
        raise JobEnded(message)
    if not folder.is_held():
        resume = f"disttrain resume {folder.path}"
        message = f"nobody runs the job in {folder.path}; go on with: {resume}"
        raise JobEnded(message)
