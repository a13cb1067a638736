"""Runs one job as processes of this machine: starts, watches, restarts and stops them."""

import select
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from disttrain.job import defaults, names, run_status
from disttrain.job.run_status import RunStatus
from disttrain.launch import config as launch_config
from disttrain.launch import linux, outcome
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.outcome import Outcome, Result
from disttrain.launcher import interruption, room
from disttrain.launcher.fleet import FORK_SERVER, Fleet
from disttrain.launcher.fork_messages import Ended, Started
from disttrain.launcher.hangs import Hangs
from disttrain.launcher.plan import preload
from disttrain.launcher.restart_policy import Exit, GiveUpReason, Restart
from disttrain.launcher.room import Room
from disttrain.launcher.run import Run
from disttrain.launcher.supervision import (
    POSTPONED_SECONDS,
    Phase,
    Process,
    State,
    Supervision,
    Verdict,
)
from disttrain.telemetry import logs

LOG = logs.get(__name__)

TICK_SECONDS = 0.25
"""Longest time between two looks at the clock and two calls of the watcher."""

STOP_SECONDS = 120.0
"""Time for the checkpoint after Ctrl-C; a second Ctrl-C ends it at once."""

GIVE_UP_SECONDS = 20.0
"""Time for the coordinator to end a job that it was told to fail."""

LEAVE_SECONDS = 5.0
"""Time for the members to end after the coordinator has."""


LOG_TAIL_BYTES = 4096

LONGEST_WORDS = 300


class Watcher(Protocol):
    """Shows the user what happens. Called from the launcher's thread; must not block."""

    def event(self, text: str) -> None:
        """Something happened: one sentence."""

    def tick(self, processes: Sequence[Process]) -> None:
        """A moment passed; the states of all processes."""


class CoordinatorLink(Protocol):
    """The launcher's conversation with the coordinator. It waits for no answer."""

    def died(self, ended: Ended, log_tail: str, *, final: bool = False) -> None:
        """A process has ended; it is started again, unless the job has ended, too.

        `final`: it is not, because the budget is spent.
        """

    def fail(self, message: str, error_kind: str) -> None:
        """A process met an error, of this class, that no restart heals; end the job as Failed."""

    def stop(self, reason: str) -> None: ...

    def heard(self) -> RunStatus | None:
        """What the coordinator says of the job; None: nothing new."""

    def close(self) -> None:
        """Stop telling; what was not answered is dropped."""


class Launcher:
    """One run of one job; `run` may be called once, in the main thread."""

    def __init__(
        self, run: Run, fleet: Fleet, open_link: Callable[[], CoordinatorLink], watcher: Watcher
    ) -> None:
        """`open_link` is called when the first processes are on their way."""
        self._run = run
        self._fleet = fleet
        self._open_link = open_link
        self._watcher = watcher
        self._supervision = Supervision(run.configs, run.job.spec)
        self._hangs = Hangs(defaults.coordinator_patience_seconds(run.job.spec), linux.used_ticks)
        self._deadline: float | None = None
        self._given_up: Outcome | None = None
        self._killed = False
        self._room = Room()
        self._restarts: dict[str, str] = {}
        """What is to be told of groups that start again, once all of their processes have ended."""

    def run(self) -> Outcome:
        """Run the job to its end. Whatever happens, no process is left when this returns."""
        try:
            with interruption.caught() as interrupts:
                self._start_due()
                self._link = self._open_link()
                while not self._over(time.monotonic()):
                    if not self._run.has_folder():
                        self._given_up = _folder_gone(self._run.folder.path)
                        break
                    self._start_due()
                    self._wait(interrupts)
                    self._interrupt(interrupts.take())
                    self._handle_events()
                    self._end_groups()
                    self._look_for_room(self._listen())
                    self._watcher.tick(list(self._supervision.processes.values()))
        finally:
            self._fleet.close()
        self._link.close()
        return self._outcome()

    def _over(self, now: float) -> bool:
        ended = self._supervision.phase is Phase.ENDING and not self._supervision.running
        late = self._deadline is not None and now >= self._deadline
        return ended or late or self._killed

    def _start_due(self) -> None:
        now = time.monotonic()
        for process in self._supervision.due(now, self._fleet.can_start):
            try:
                self._start(process)
            except OSError as error:
                # The folder may be full or away for a while. The others train on.
                self._postpone(process, error, now)
        if self._supervision.is_any_due(now):
            self._fleet.prepare_replicas()

    def _start(self, process: Process) -> None:
        config = self._run.configs[process.name]
        if process.restarts and self._has_begun(process.name):
            # The coordinator goes on from its journal, a shard from the newest checkpoint of
            # this job that is whole: which one that is, it has to read them to know.
            config = replace(config, resume_from=None)
        self._run.folder.failure(process.name).unlink(missing_ok=True)
        launch_config.write(self._run.folder.config(process.name), config)
        self._fleet.start(process.name)
        if (news := early_end(process)) is not None:
            self._watcher.event(news)

    def _postpone(self, process: Process, error: OSError, now: float) -> None:
        if not self._supervision.postponed(process.name, now):
            return
        reason = f"{error.filename or self._run.folder.path}: {error.strerror}"
        LOG.warning("cannot be started", process=process.name, reason=reason)
        again = f"it is tried again every {POSTPONED_SECONDS:.0f} s"
        self._watcher.event(f"{process.name} cannot be started ({reason}); {again}")

    def _has_begun(self, name: str) -> bool:
        """Whether what an incarnation before has left is there for this one to go on from."""
        # Until then the journal is that of the incarnation of the run that was stopped.
        return name != names.COORDINATOR or self._run.folder.resumed.exists()

    def _wait(self, interrupts: interruption.Interrupts) -> None:
        due = self._supervision.next_due()
        seconds = TICK_SECONDS if due is None else min(TICK_SECONDS, due - time.monotonic())
        poll = select.poll()
        for descriptor in [interrupts.descriptor, *self._fleet.descriptors()]:
            poll.register(descriptor, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)

    def _interrupt(self, count: int) -> None:
        if not count:
            return
        if count > 1 or self._supervision.phase is not Phase.RUNNING:
            self._watcher.event("killing all processes")
            self._killed = True
            return
        self._watcher.event("stopping after a checkpoint; press Ctrl-C again to kill at once")
        self._link.stop("interrupted")
        self._supervision.interrupted()
        self._deadline = time.monotonic() + STOP_SECONDS

    def _listen(self) -> RunStatus | None:
        heard = self._link.heard()
        if heard is not None and heard.phase in set(Result):
            self._supervision.closes()
        self._kill_hanging(heard)
        return heard

    def _kill_hanging(self, heard: RunStatus | None) -> None:
        """Whoever hangs is ended, so that it is started again as anybody who ended by itself."""
        running = [one for one in self._supervision.running if one.state is State.RUNNING]
        for hang in self._hangs.look(running, heard, time.monotonic(), self._fleet.owing()):
            LOG.warning("killed", process=hang.name, pid=hang.pid, reason=hang.reason)
            self._watcher.event(f"{hang.name} hangs ({hang.reason}) and is killed")
            self._fleet.kill(hang.pid)

    def _look_for_room(self, heard: RunStatus | None) -> None:
        folder, lacked = self._run.folder.path, self._room.is_lacking
        saved = None if heard is None else heard.checkpoint
        self._room.look(is_short=room.is_short(folder), checkpoint=saved)
        if self._room.is_lacking and not lacked:
            self._watcher.event(f"the disk of {folder} is full: nothing is saved until it has room")
        elif lacked and not self._room.is_lacking:
            self._watcher.event(f"the disk of {folder} has room again")

    def _end_groups(self) -> None:
        """Whose group has ended is ended, too."""
        for pid, how in self._supervision.to_stop(time.monotonic()):
            LOG.info("ends with its group", pid=pid, signal=how.name)
            self._fleet.kill(pid, how)

    def _handle_events(self) -> None:
        for event in self._fleet.events():
            match event:
                case Started():
                    self._started(event)
                case Ended():
                    self._ended(event)
                case str():
                    LOG.warning(event)
                    self._watcher.event(event)

    def _started(self, event: Started) -> None:
        self._supervision.started(event.name, event.pid)
        LOG.info("started", process=event.name, pid=event.pid)
        try:
            self._run.note_pid(event.name, event.pid)
        except OSError as error:
            # Nobody needs it to train; the next start writes it, too.
            LOG.warning("run.json lacks its pid", process=event.name, reason=error.strerror)
        if self._supervision.phase is Phase.ENDING:
            # It was asked for before the end, and has joined nothing.
            self._fleet.kill(event.pid)

    def _ended(self, event: Ended) -> None:
        exit_ = Exit(event.code)
        verdict = self._supervision.ended(event.name, exit_, time.monotonic())
        LOG.info("ended", process=event.name, pid=event.pid, exit=exit_)
        if self._supervision.phase is Phase.ENDING:
            self._end(event, verdict)
        elif isinstance(verdict, Restart):
            self._restart(event, verdict)
        elif isinstance(verdict, GiveUpReason):
            # A process that ended before, since it missed this one, does not start again either.
            self._restarts.pop(names.parse(event.name).group, None)
            self._give_up(event, verdict)
        elif not exit_.is_orderly:
            # The job has ended: the coordinator must not wait for this one, too. Or its group has.
            self._link.died(event, self._log_tail(event))
        self._tell_restart(names.parse(event.name).group)

    def _restart(self, event: Ended, verdict: Restart) -> None:
        exit_ = Exit(event.code)
        # At the job's end members end a moment before the coordinator; that is no news. Who left
        # before it is told of when it starts again.
        if exit_.is_orderly:
            return
        if event.name != names.COORDINATOR:
            self._link.died(event, self._log_tail(event))
        again = f"starts again in {verdict.delay_seconds:.1f} s (restart {verdict.number})"
        cause = last_words(event.code, self._log_tail(event))
        group = names.parse(event.name).group
        self._restarts[group] = f"{event.name}: {exit_}{cause}; {again}"

    def _tell_restart(self, group: str) -> None:
        if group in self._restarts and not self._supervision.is_ending(group):
            self._watcher.event(self._restarts.pop(group))

    def _give_up(self, event: Ended, verdict: GiveUpReason) -> None:
        self._given_up = self._failed(event, verdict)
        self._deadline = time.monotonic() + GIVE_UP_SECONDS
        if verdict is GiveUpReason.FINAL_ERROR:
            # By its own error, which the outcome tells in full.
            self._watcher.event(f"{event.name} fails the job")
            failure = outcome.read_failure(self._run.folder.failure(event.name))
            self._link.fail(self._given_up.message, "" if failure is None else failure.kind)
            # After the reason, of which a shard's death would else take the place.
            self._link.died(event, self._log_tail(event))
        else:
            self._watcher.event(f"the job fails: {self._given_up.message.splitlines()[0]}")
            self._link.died(event, self._log_tail(event), final=True)

    def _end(self, event: Ended, verdict: Verdict) -> None:
        if event.name != names.COORDINATOR:
            return
        if isinstance(verdict, GiveUpReason):
            self._given_up = self._failed(event, verdict)
        # Without a coordinator nobody tells the members to end.
        self._deadline = time.monotonic() + (LEAVE_SECONDS if verdict is None else 0.0)
        self._kill_strangers()

    def _kill_strangers(self) -> None:
        """Who has not joined by the end of the job hears nothing of it, and has nothing to keep."""
        last = run_status.read(self._run.folder.status)
        if last is None or last.phase not in set(Result):
            return
        joined = last.joined
        for process in self._supervision.running:
            if (process.name, process.pid) not in joined:
                self._fleet.kill(process.pid)

    def _failed(self, event: Ended, verdict: GiveUpReason) -> Outcome:
        failure = outcome.read_failure(self._run.folder.failure(event.name))
        if verdict is GiveUpReason.FINAL_ERROR and failure is not None:
            message = f"{event.name}: {failure.message}"
        else:
            tail = self._log_tail(event)
            message = f"{event.name}: {Exit(event.code)}, and may not be started again\n{tail}"
        return Outcome(result=Result.FAILED, reason=verdict, message=message)

    def _log_tail(self, event: Ended) -> str:
        name = event.name if event.pid else FORK_SERVER
        return _tail(self._run.folder.log(name))

    def _outcome(self) -> Outcome:
        summary = self._run.folder.summary
        if told := outcome.read_summary(summary):
            return told
        seen = self._given_up or self._seen()
        outcome.write_summary(summary, seen)
        return seen

    def _seen(self) -> Outcome:
        exit_ = self._supervision.processes[names.COORDINATOR].last_exit
        if self._supervision.phase is Phase.STOPPING or self._killed or exit_ is None:
            return Outcome(result=Result.STOPPED, reason="Interrupted")
        result = outcome.RESULTS.get(exit_.code, Result.FAILED)
        message = f"the coordinator ended with {exit_} and left no {self._run.folder.summary.name}"
        return Outcome(result=result, message=message)


def _folder_gone(folder: Path) -> Outcome:
    message = (
        f"{folder} was deleted or renamed while the job ran: nothing can be saved there any more; "
        "a renamed folder goes on with `disttrain resume`"
    )
    return Outcome(result=Result.FAILED, reason="RunFolderGone", message=message)


def early_end(process: Process) -> str | None:
    """That a process which starts again had ended as if the job was over; None if it had not."""
    exit_ = process.last_exit
    if exit_ is None or not exit_.is_orderly or process.is_consequence:
        return None
    return f"{process.name}: {exit_} before the job's end; starts again now"


def last_words(code: int, log_tail: str) -> str:
    """The exception of a process that crashed, in brackets: the last line of its log."""
    lines = log_tail.rstrip().splitlines()
    if code != ExitCode.CRASHED or not lines:
        return ""
    return f" ({lines[-1][:LONGEST_WORDS]})"


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""


def run_job(run: Run, watcher: Watcher, open_link: Callable[[Run], CoordinatorLink]) -> Outcome:
    """Run a prepared job to its end, in the main thread of a process that does nothing else.

    It adopts and kills every descendant that is left at the end. Closes the run.
    """
    linux.adopt_orphans()
    logs.configure(names.LAUNCHER, run.folder.logs)
    fleet = Fleet(run.folder, preload(run.job.spec, run.place.task_folder))
    with closing(run):
        return Launcher(run, fleet, lambda: open_link(run), watcher).run()
