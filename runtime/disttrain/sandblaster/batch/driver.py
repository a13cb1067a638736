"""What the coordinator does with a method: commands to shards, groups to replicas, answers back.

Pure. Its state is plain values, so that a coordinator that journals it before it sends anything
goes on in the same line search after it was killed, with the same bits.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import GenericAlias
from typing import Any, Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter

from disttrain.sandblaster import operations
from disttrain.sandblaster.batch import groups
from disttrain.sandblaster.batch.batches import Batches, Run
from disttrain.sandblaster.batch.groups import (
    Attempt,
    BackupRules,
    Evaluation,
    Result,
    Tally,
    Worker,
)
from disttrain.sandblaster.batch.programs import Decided, Performed, Program
from disttrain.sandblaster.method import Answer, Request
from disttrain.sandblaster.scheme import IterationScheme, State

ATTEMPTS_PER_INCARNATION = 2**32
"""An incarnation of the coordinator numbers its attempts from this times its incarnation."""


class Stage(StrEnum):
    """What is waited for."""

    SETTLING = "settling"
    """Answers to a command that only makes the point accepted last the parameters."""
    PREPARING = "preparing"
    """Answers to the command before an evaluation."""
    COMPUTING = "computing"
    """Gradients of groups."""
    MEASURING = "measuring"
    """Answers to the command that commits them."""
    DONE = "done"
    """Nothing: the method has ended."""


@dataclass(kw_only=True, slots=True)
class RunState:
    """Everything that a coordinator must not forget. Changed by `Driver` only."""

    method: State
    request: Request
    """What the method wants, of which one part is under way."""
    stage: Stage = Stage.PREPARING
    order: Program
    """The latest; it is repeated until every shard has answered."""
    answers: dict[int, tuple[float, ...]] = field(default_factory=dict)
    """To this command, by shard."""
    prepared: tuple[float, ...] = ()
    """Scalars of the command before the evaluation."""
    evaluation: Evaluation
    """Under way, or the latest."""
    overlap: Tally | None = None
    """Of what the latest batch shares with the next one, where it was evaluated last."""
    tally: Tally = field(default_factory=lambda: Tally(loss_sum=0.0, samples=1))
    """Of all samples of the batch in the latest evaluation that was complete."""
    samples: int = 0
    """That were worked on: of all evaluations since the beginning that are complete."""


Value = TypeVar("Value")


class JsonForm(Generic[Value]):
    """Of values of one type."""

    def __init__(self, kind: type[Value]) -> None:
        # Settings are not taken for a dataclass itself, but for a tuple that holds one.
        alone: Any = GenericAlias(tuple, (kind,))
        config = ConfigDict(ser_json_inf_nan="constants")
        self._adapter: TypeAdapter[tuple[Value]] = TypeAdapter(alone, config=config)

    def write(self, value: Value) -> bytes:
        return self._adapter.dump_json((value,))

    def read(self, content: bytes) -> Value:
        """The value. Raises pydantic's ValidationError."""
        (value,) = self._adapter.validate_json(content, strict=True)
        return value


RUN_STATE_JSON = JsonForm(RunState)
"""Of a state."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverRules:
    """How a batch is worked on."""

    groups: int
    """Of the data."""
    backup: BackupRules = field(default_factory=BackupRules)
    batches: Batches | None = None
    """None: all of the data is one batch."""

    def groups_of(self, request: Request) -> int | tuple[Run, ...]:
        """What a request is to be evaluated on: so many groups from 0 on, or those of some runs."""
        if self.batches is None:
            return self.groups
        return self.batches.batch(request.batch).runs(request.part)


class Driver:
    """The transitions. Holds no state."""

    def __init__(self, scheme: IterationScheme, rules: DriverRules) -> None:
        self._scheme = scheme
        self._rules = rules

    def begin(self, coordinator: int, shards: tuple[int, ...]) -> RunState:
        """The first command. `shards`: their incarnations, by index."""
        method, request = self._begun()
        first = groups.begun(1, self._rules.groups_of(request), shards)
        command = Program(
            coordinator=coordinator,
            number=1,
            iteration=0,
            evaluation=1,
            operations=request.prepare,
        )
        opened = _opened(command, first)
        return RunState(method=method, request=request, order=opened, evaluation=first)

    def answered(self, state: RunState, shard: int, performed: Performed) -> None:
        """A shard's answer; one to an earlier command, and one said again, change nothing."""
        is_awaited = state.stage in {Stage.SETTLING, Stage.PREPARING, Stage.MEASURING}
        if performed.number != state.order.number or not is_awaited:
            return
        state.answers[shard] = performed.scalars
        if len(state.answers) == len(state.evaluation.shards):
            self._all_answered(state)

    def accept_first(self, state: RunState) -> None:
        """The latest command, which nobody has heard of, becomes two: see `Request.settles`.

        So whoever reads the parameters between them sees the point accepted last.
        """
        settles = state.request.settles
        accepting, rest = state.request.prepare[:settles], state.request.prepare[settles:]
        state.request = replace(state.request, prepare=rest, settles=0)
        state.order = replace(state.order, operations=accepting, evaluation=0, groups=0, runs=())
        state.stage = Stage.SETTLING

    def interrupted(self, state: RunState) -> None:
        """What was computed of the evaluation under way is dropped; it begins again by a command.

        Only while groups are computed.
        """
        done = state.evaluation
        state.request = replace(state.request, prepare=(), settles=0)
        state.stage = Stage.PREPARING
        state.evaluation = groups.begun(
            done.number + 1, done.runs or done.groups, done.shards, done
        )
        self._command(state, replace(state.order, evaluation=state.evaluation.number), ())

    def has_group(self, state: RunState, worker: Worker) -> bool:
        """Whether `request_group` has a group for a replica beyond those it was given."""
        if state.stage is not Stage.COMPUTING:
            return False
        return groups.has_work(state.evaluation, worker, self._rules.backup)

    def request_group(
        self, state: RunState, worker: Worker, holding: Collection[int] = ()
    ) -> Attempt | None:
        """A group for a replica that has these attempts; None: there is nothing to do now."""
        if state.stage is not Stage.COMPUTING:
            return None
        return groups.grant(state.evaluation, worker, self._rules.backup, holding)

    def staged(self, state: RunState, worker: Worker, result: Result) -> None:
        """A replica says that every shard holds an attempt of it."""
        if state.stage is not Stage.COMPUTING:
            return
        groups.take(state.evaluation, worker, result)
        if state.evaluation.is_complete:
            self._commit(state)

    def decided(self, state: RunState, told: int = 0) -> Decided:
        """What shards may be told meanwhile; journaled before, as a command is.

        Of the winners so far, in the order in which they won, the first `told` are left out.
        """
        found = state.evaluation
        won = list(found.winners.items())[told:]
        winners = {group: winner.attempt for group, winner in won}
        return Decided(
            coordinator=state.order.coordinator, evaluation=found.number, winners=winners
        )

    def lost(self, state: RunState, worker: Worker) -> None:
        groups.lose(state.evaluation, worker)

    def begun_again(self, state: RunState) -> None:
        """The method begins at the point accepted last, by these rules, and remembers nothing.

        Only where no command is under way and the point is the parameters, as at a snapshot. What
        was done still counts, and no number is used again.
        """
        (method, request), before = self._begun(), state.method
        is_over = state.stage is Stage.DONE
        progress = replace(before.progress, end=None)
        state.method = replace(method, progress=progress, decisions=before.decisions)
        state.overlap = None
        # The latest command was not given yet, unless it was the method's last one.
        latest = state.order.number if is_over else state.order.number - 1
        self._want(state, request, replace(state.order, number=latest, commits=(), samples=0))

    def taken_over(self, state: RunState, coordinator: int) -> None:
        """Another incarnation of the coordinator goes on from what was journaled.

        It says its latest command again, and decides nothing before every shard has answered: then
        no shard listens to an earlier incarnation, which may not know that it is over. Its attempts
        are numbered differently from those that an earlier incarnation may still give out.
        """
        state.order = replace(state.order, coordinator=coordinator)
        state.answers = {}
        if state.stage is Stage.COMPUTING:
            state.stage = Stage.PREPARING
        state.evaluation.next_attempt = max(
            state.evaluation.next_attempt, coordinator * ATTEMPTS_PER_INCARNATION
        )

    def rolled_back(self, state: RunState, snapshot: RunState, shards: tuple[int, ...]) -> None:
        """All shards, in new incarnations, are back where the command of `snapshot` was the next.

        Numbers of evaluations and attempts are never used again.
        """
        state.method, state.request, state.prepared = (
            snapshot.method,
            snapshot.request,
            snapshot.prepared,
        )
        state.stage = Stage.DONE if snapshot.stage is Stage.DONE else Stage.PREPARING
        state.overlap, state.samples = snapshot.overlap, snapshot.samples
        self._begin_evaluation(state, shards)
        coordinator = state.order.coordinator
        opened = state.evaluation.number if snapshot.request.evaluates else 0
        state.order = replace(snapshot.order, coordinator=coordinator, evaluation=opened)
        state.answers = {}

    def _all_answered(self, state: RunState) -> None:
        answers = [state.answers[shard] for shard in sorted(state.answers)]
        scalars = operations.merged(state.order.operations, answers)
        if state.stage is Stage.SETTLING:
            self._accepted(state)
        elif state.stage is Stage.PREPARING and state.request.evaluates:
            state.stage, state.prepared = Stage.COMPUTING, scalars
        elif state.stage is Stage.PREPARING:
            self._go_on(state, Answer(scalars=scalars))
        else:
            loss = state.tally.loss_sum / state.tally.divisor
            answer = Answer(scalars=state.prepared + scalars, loss=loss)
            self._go_on(state, answer)

    def _accepted(self, state: RunState) -> None:
        state.stage = Stage.PREPARING
        opened = state.order
        if state.request.evaluates:
            opened = _opened(opened, state.evaluation)
        self._command(state, opened, state.request.prepare)

    def _commit(self, state: RunState) -> None:
        found = groups.committed(state.evaluation, state.overlap)
        state.stage, state.overlap, state.tally = Stage.MEASURING, found.overlap, found.batch
        state.samples += found.samples
        # From here on gradients that come too late are refused: no evaluation is under way.
        committed = replace(
            state.order,
            evaluation=0,
            groups=0,
            runs=found.runs,
            commits=groups.winners(state.evaluation),
            samples=found.samples,
            divisor=found.batch.count,
        )
        self._command(state, committed, (*found.adding, *state.request.measure))

    def _go_on(self, state: RunState, answer: Answer) -> None:
        step = self._scheme.advance(state.method, answer)
        state.method = step.state
        if step.request is None:
            state.stage = Stage.DONE
            return
        ended = replace(
            state.order, evaluation=0, groups=0, runs=(), commits=(), samples=0, divisor=None
        )
        self._want(state, step.request, ended)

    def _want(self, state: RunState, request: Request, command: Program) -> None:
        """Command the operations that a request begins with, beside what `command` says already."""
        state.request, state.stage, state.prepared = request, Stage.PREPARING, ()
        if request.evaluates:
            self._begin_evaluation(state, state.evaluation.shards)
            command = _opened(command, state.evaluation)
        self._command(state, command, request.prepare)

    def _begun(self) -> tuple[State, Request]:
        step = self._scheme.begin()
        if step.request is None:
            message = "a method begins with a request"
            raise AssertionError(message)
        return step.state, step.request

    def _begin_evaluation(self, state: RunState, shards: tuple[int, ...]) -> None:
        done, wanted = state.evaluation, self._rules.groups_of(state.request)
        state.evaluation = groups.begun(done.number + 1, wanted, shards, done)

    def _command(
        self, state: RunState, command: Program, wanted: tuple[operations.Operation, ...]
    ) -> None:
        iteration = state.method.progress.iteration
        state.order = replace(
            command, number=command.number + 1, iteration=iteration, operations=wanted
        )
        state.answers = {}


def _opened(command: Program, evaluation: Evaluation) -> Program:
    return replace(
        command, evaluation=evaluation.number, groups=evaluation.groups, runs=evaluation.runs
    )
