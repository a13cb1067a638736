"""One incarnation of a replica: take over the shards' values, train, carry out commands, end."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import safetensors
from torch import nn

from disttrain.checkpoint import copies, export
from disttrain.coordinator.errors import MemberFenced
from disttrain.coordinator.protocol.commands import (
    Checkpoint,
    Command,
    CommandFailed,
    Done,
    Drain,
    Drained,
    End,
    Evaluate,
    Evaluated,
    Export,
    LeaveWarmStart,
    NumberedCommand,
    Result,
    Upload,
)
from disttrain.coordinator.protocol.messages import Joined
from disttrain.errors import DistTrainError
from disttrain.groups.errors import GroupLost
from disttrain.groups.steps import Leader
from disttrain.launch.exit_code import ExitCode
from disttrain.parameter_server.client import Versions
from disttrain.parameter_server.errors import Fenced
from disttrain.replica import best_model, model_tensors
from disttrain.replica.agreement import Act
from disttrain.replica.cancellation import Cancelled
from disttrain.replica.membership import Membership
from disttrain.replica.prepared import Prepared
from disttrain.replica.training import Stages
from disttrain.task.errors import ModelError, TaskError
from disttrain.task.task import Split
from disttrain.telemetry import logs

LOG = logs.get(__name__)

Answer = Callable[[Result], None]


class Commands:
    """Carries out one command at a time; belongs to the compute thread."""

    def __init__(
        self, prepared: Prepared, training: Stages, upload: Callable[[tuple[int, ...]], None]
    ) -> None:
        self._prepared = prepared
        self._task = prepared.task
        self._model = prepared.model
        self._device = prepared.device
        self._frozen = prepared.tensors.frozen
        self._training = training
        self._upload = upload

    def carry_out(self, command: Command, answer: Answer) -> None:
        """Answer at once, or an evaluation between two later steps.

        What goes wrong is told to the coordinator. Raises TaskError for a mistake of the task in
        training, which ends the replica, and GroupLost: the command is then another replica's, or
        its next incarnation's.
        """
        if isinstance(command, Evaluate) and command.model_file is None:
            self._training.now.measure(
                lambda fetch: answer(self._tried(command, partial(self._measure, command, fetch)))
            )
            return
        answer(self._tried(command, partial(self._carry_out, command)))

    def _tried(self, command: Command, act: Callable[[], Result]) -> Result:
        try:
            return act()
        except GroupLost:
            raise
        except (DistTrainError, OSError, RuntimeError, safetensors.SafetensorError) as error:
            if isinstance(error, TaskError) and not isinstance(command, Evaluate):
                raise
            LOG.exception("command failed", command=command.kind)
            return CommandFailed(message=str(error)[:32_000])

    def _carry_out(self, command: Command) -> Result:
        match command:
            case Upload():
                self._prepared.tell(Act.UPLOAD)
                self._upload(command.shards)
            case Checkpoint():
                return self._training.now.write_part(command)
            case Evaluate(model_file=str(file)):
                return self._evaluate(command, file)
            case Export():
                export.export_named(command.checkpoint, command.out)
            case Drain():
                self._training.now.drain()
                return Drained(progress=self._training.progress())
            case LeaveWarmStart():
                self._training.next_stage()
            case End():
                LOG.info("told to end", reason=command.reason)
            case _:
                return CommandFailed(message=f"'{command.kind}' is no command for a replica")
        return Done()

    def _measure(self, command: Evaluate, fetch: Callable[[], Versions]) -> Evaluated:
        began = time.perf_counter()
        versions = tuple(count for _, count in fetch())
        return self._evaluated(command, self._model, versions, began)

    def _evaluate(self, command: Evaluate, model_file: str) -> Evaluated:
        began = time.perf_counter()
        with self._loaded(model_file) as model:
            return self._evaluated(command, model, (), began)

    @contextmanager
    def _loaded(self, model_file: str) -> Iterator[nn.Module]:
        if self._prepared.of_several is not None:
            # Each process brings it to where it is, from a store too.
            with self._prepared.of_several.loaded(model_file) as model:
                yield model
            return
        with copies.file_at(model_file) as file:
            model = self._load(file)
        yield model

    def _evaluated(
        self, command: Evaluate, model: nn.Module, versions: tuple[int, ...], began: float
    ) -> Evaluated:
        sums = self._prepared.evaluate(model, Split(command.split), command.batch_size)
        found = Evaluated(
            sums=sums.measures, samples=sums.samples, loss=sums.mean_loss, versions=versions
        )
        kept = command.keep is not None and best_model.keep(
            command.keep, model, found, self._frozen, self._prepared.content_of(model)
        )
        return replace(found, seconds=time.perf_counter() - began, kept=kept)

    def _load(self, file: Path) -> nn.Module:
        """A new model with exactly what the file holds. Raises ModelError if it does not fit."""
        model = self._task.model(seed=0)
        try:
            # What `model()` draws depends on the seed.
            model_tensors.load(model, file, self._frozen, own_of=self._model)
        except RuntimeError as error:
            message = (
                "the exported model does not fit: did Task.model() build another model in this "
                "process? Let it depend on spec.task.arguments alone, not on the process, the "
                f"time or chance. {error}"
            )
            raise ModelError(message) from error
        return model.to(self._device)


_COMMAND_SECONDS = 0.01
_WANT_VALUES = (Checkpoint, Evaluate, LeaveWarmStart)


class Replica:
    """Belongs to the compute thread, but for `leave`."""

    def __init__(
        self,
        prepared: Prepared,
        membership: Membership,
        joined: Joined,
        training: Stages,
        leader: Leader | None = None,
    ) -> None:
        """`leader`: of the processes of this replica, if it has others."""
        self._leader = leader
        self._membership = membership
        self._coordinator = membership.coordinator
        self._member = joined.member
        self._training = training
        self._cancellation = membership.cancellation
        self._exit_code: ExitCode | None = None
        self._leaving = False
        self._has_begun = False
        self._postponed: list[NumberedCommand] = []
        self._commands = Commands(prepared, training, membership.upload)

    def leave(self, patience_seconds: float) -> None:
        """End after the current step; the rest of the work goes to others. For signal handlers.

        A shard that is away keeps this process for so long at most.
        """
        self._leaving = True
        impatience = threading.Timer(patience_seconds, self._cancellation.cancel)
        impatience.daemon = True
        impatience.start()

    def run(self) -> ExitCode:
        """Train until told to end; RESTART if this incarnation was declared dead.

        Raises what ended one of the threads.
        """
        code = self._run()
        if self._leader is not None:
            self._leader.end(code)
        return code

    def _run(self) -> ExitCode:
        try:
            self._train()
            return self._say_goodbye() if self._exit_code is None else self._exit_code
        except (Fenced, MemberFenced) as error:
            LOG.warning("was declared dead", incarnation=self._member.incarnation, error=error)
            return ExitCode.RESTART
        except GroupLost as error:
            self._look_for_end()
            LOG.warning("its group is over", incarnation=self._member.incarnation, error=error)
            return ExitCode.RESTART if self._exit_code is None else self._exit_code
        except Cancelled:
            self._look_for_end()
            if self._exit_code is not None:
                return self._exit_code
            LOG.warning("left without an answer to its last pushes")
            # How far it came, the shards will tell.
            self._membership.leave(self._member, None)
            return ExitCode.INTERRUPTED

    def _train(self) -> None:
        try:
            self._training.begin(self._wait_for_command)
        except _Ended:
            return
        self._has_begun = True
        LOG.info("trains", incarnation=self._member.incarnation)
        self._training.train_until(self._ends)

    def _ends(self) -> bool:
        self._carry_out_commands()
        others_leave = self._leader is not None and self._leader.others_leave
        return self._leaving or others_leave or self._exit_code is not None

    def _wait_for_command(self) -> None:
        if self._ends():
            raise _Ended
        time.sleep(_COMMAND_SECONDS)

    def _carry_out_commands(self) -> None:
        for numbered in self._commands_now():
            self._carry_out(numbered)

    def _carry_out(self, numbered: NumberedCommand) -> None:
        self._commands.carry_out(numbered.order, partial(self._coordinator.answer, numbered))
        if isinstance(numbered.order, End):
            self._exit_code = ExitCode.COMPLETE if numbered.id else ExitCode.RESTART

    def _look_for_end(self) -> None:
        """Carry out an End that came while this thread waited; what else came is over with it."""
        while not self._coordinator.commands.empty():
            numbered = self._coordinator.commands.get()
            if isinstance(numbered.order, End):
                self._carry_out(numbered)

    def _commands_now(self) -> Iterator[NumberedCommand]:
        """What is to be carried out now; what needs the first values has to wait for them."""
        if self._has_begun:
            yield from self._postponed
            self._postponed.clear()
        while not self._coordinator.commands.empty():
            numbered = self._coordinator.commands.get()
            if self._has_begun or not isinstance(numbered.order, _WANT_VALUES):
                yield numbered
            else:
                self._postponed.append(numbered)

    def _say_goodbye(self) -> ExitCode:
        self._training.now.drain()
        progress = self._training.progress()
        if self._membership.connection is not None:
            self._membership.connection.ledger.left()
        self._membership.leave(self._member, progress)
        LOG.info("left", samples=progress.samples)
        return ExitCode.INTERRUPTED


class _Ended(Exception):
    """Told to end before the first step."""
