"""What the coordinator does with a method: orders to shards, groups to replicas, answers back.

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
from disttrain.sandblaster.batch.batches import Batches
from disttrain.sandblaster.batch.groups import (
    Attempt,
    BackupRules,
    Evaluation,
    Result,
    Tally,
    Worker,
)
from disttrain.sandblaster.batch.orders import Decided, Order, Performed
from disttrain.sandblaster.batch.runs import Run
from disttrain.sandblaster.frame import Frame, State
from disttrain.sandblaster.method import Answer, Request

ATTEMPTS_OF_A_LIFE = 2**32
"""A life of the coordinator numbers its attempts from this times its incarnation."""


class Stage(StrEnum):
    """What is waited for."""

    SETTLING = "settling"
    """Answers to an order that only makes the point accepted last the parameters."""
    PREPARING = "preparing"
    """Answers to the order before an evaluation."""
    COMPUTING = "computing"
    """Gradients of groups."""
    MEASURING = "measuring"
    """Answers to the order that commits them."""
    DONE = "done"
    """Nothing: the method has ended."""


@dataclass(kw_only=True, slots=True)
class Course:
    """Everything that a coordinator must not forget. Changed by `Driver` only."""

    method: State
    request: Request
    """What the method wants, of which one part is under way."""
    stage: Stage = Stage.PREPARING
    order: Order
    """The latest; it is repeated until every shard has answered."""
    answers: dict[int, tuple[float, ...]] = field(default_factory=dict)
    """To this order, by shard."""
    prepared: tuple[float, ...] = ()
    """Scalars of the order before the evaluation."""
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


COURSE_JSON = JsonForm(Course)
"""Of a course."""


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

    def __init__(self, frame: Frame, rules: DriverRules) -> None:
        self._frame = frame
        self._rules = rules

    def begin(self, coordinator: int, shards: tuple[int, ...]) -> Course:
        """The first order. `shards`: their incarnations, by index."""
        state, request = self._begun()
        first = groups.begun(1, self._rules.groups_of(request), shards)
        order = Order(
            coordinator=coordinator,
            number=1,
            iteration=0,
            evaluation=1,
            operations=request.prepare,
        )
        opened = _opened(order, first)
        return Course(method=state, request=request, order=opened, evaluation=first)

    def answered(self, course: Course, shard: int, performed: Performed) -> None:
        """A shard's answer; one to an earlier order, and one said again, change nothing."""
        is_awaited = course.stage in {Stage.SETTLING, Stage.PREPARING, Stage.MEASURING}
        if performed.number != course.order.number or not is_awaited:
            return
        course.answers[shard] = performed.scalars
        if len(course.answers) == len(course.evaluation.shards):
            self._all_answered(course)

    def settle_first(self, course: Course) -> None:
        """The latest order, which nobody has heard of, becomes two: see `Request.settles`.

        So whoever reads the parameters between them sees the point accepted last.
        """
        settles = course.request.settles
        settling, rest = course.request.prepare[:settles], course.request.prepare[settles:]
        course.request = replace(course.request, prepare=rest, settles=0)
        course.order = replace(course.order, operations=settling, evaluation=0, groups=0, runs=())
        course.stage = Stage.SETTLING

    def interrupted(self, course: Course) -> None:
        """What was computed of the evaluation under way is dropped; it begins again by an order.

        Only while groups are computed.
        """
        done = course.evaluation
        course.request = replace(course.request, prepare=(), settles=0)
        course.stage = Stage.PREPARING
        course.evaluation = groups.begun(
            done.number + 1, done.runs or done.groups, done.shards, done
        )
        self._order(course, replace(course.order, evaluation=course.evaluation.number), ())

    def has_group(self, course: Course, worker: Worker) -> bool:
        """Whether `request_group` has a group for a replica beyond those it was given."""
        if course.stage is not Stage.COMPUTING:
            return False
        return groups.has_work(course.evaluation, worker, self._rules.backup)

    def request_group(
        self, course: Course, worker: Worker, holding: Collection[int] = ()
    ) -> Attempt | None:
        """A group for a replica that has these attempts; None: there is nothing to do now."""
        if course.stage is not Stage.COMPUTING:
            return None
        return groups.grant(course.evaluation, worker, self._rules.backup, holding)

    def staged(self, course: Course, worker: Worker, result: Result) -> None:
        """A replica says that every shard holds an attempt of it."""
        if course.stage is not Stage.COMPUTING:
            return
        groups.take(course.evaluation, worker, result)
        if course.evaluation.is_complete:
            self._commit(course)

    def decided(self, course: Course, told: int = 0) -> Decided:
        """What shards may be told meanwhile; journaled before, as an order is.

        Of the winners so far, in the order in which they won, the first `told` are left out.
        """
        found = course.evaluation
        won = list(found.winners.items())[told:]
        winners = {group: winner.attempt for group, winner in won}
        return Decided(
            coordinator=course.order.coordinator, evaluation=found.number, winners=winners
        )

    def lost(self, course: Course, worker: Worker) -> None:
        groups.lose(course.evaluation, worker)

    def begun_again(self, course: Course) -> None:
        """The method begins at the point accepted last, by these rules, and remembers nothing.

        Only at a cut, where no order is under way and the point is the parameters. What was done
        still counts, and no number is used again.
        """
        (state, request), before = self._begun(), course.method
        is_over = course.stage is Stage.DONE
        progress = replace(before.progress, end=None)
        course.method = replace(state, progress=progress, decisions=before.decisions)
        course.overlap = None
        # The latest order was not given yet, unless it was the method's last one.
        latest = course.order.number if is_over else course.order.number - 1
        self._want(course, request, replace(course.order, number=latest, commits=(), samples=0))

    def taken_over(self, course: Course, coordinator: int) -> None:
        """Another life of the coordinator goes on from what was journaled.

        It says its latest order again, and decides nothing before every shard has answered: then
        no shard listens to an earlier life, which may not know that it is over. Its attempts are
        numbered differently from those that an earlier life may still give out.
        """
        course.order = replace(course.order, coordinator=coordinator)
        course.answers = {}
        if course.stage is Stage.COMPUTING:
            course.stage = Stage.PREPARING
        course.evaluation.next_attempt = max(
            course.evaluation.next_attempt, coordinator * ATTEMPTS_OF_A_LIFE
        )

    def returned(self, course: Course, cut: Course, shards: tuple[int, ...]) -> None:
        """All shards have gone back to where the order of `cut` was the next one, in new lives.

        Numbers of evaluations and attempts are never used again.
        """
        course.method, course.request, course.prepared = cut.method, cut.request, cut.prepared
        course.stage = Stage.DONE if cut.stage is Stage.DONE else Stage.PREPARING
        course.overlap, course.samples = cut.overlap, cut.samples
        self._begin_evaluation(course, shards)
        coordinator = course.order.coordinator
        opened = course.evaluation.number if cut.request.evaluates else 0
        course.order = replace(cut.order, coordinator=coordinator, evaluation=opened)
        course.answers = {}

    def _all_answered(self, course: Course) -> None:
        answers = [course.answers[shard] for shard in sorted(course.answers)]
        scalars = operations.merged(course.order.operations, answers)
        if course.stage is Stage.SETTLING:
            self._settled(course)
        elif course.stage is Stage.PREPARING and course.request.evaluates:
            course.stage, course.prepared = Stage.COMPUTING, scalars
        elif course.stage is Stage.PREPARING:
            self._go_on(course, Answer(scalars=scalars))
        else:
            loss = course.tally.loss_sum / course.tally.divisor
            answer = Answer(scalars=course.prepared + scalars, loss=loss)
            self._go_on(course, answer)

    def _settled(self, course: Course) -> None:
        course.stage = Stage.PREPARING
        opened = course.order
        if course.request.evaluates:
            opened = _opened(opened, course.evaluation)
        self._order(course, opened, course.request.prepare)

    def _commit(self, course: Course) -> None:
        found = groups.committed(course.evaluation, course.overlap)
        course.stage, course.overlap, course.tally = Stage.MEASURING, found.overlap, found.batch
        course.samples += found.samples
        # From here on gradients that come too late are refused: no evaluation is under way.
        committed = replace(
            course.order,
            evaluation=0,
            groups=0,
            runs=found.runs,
            commits=groups.winners(course.evaluation),
            samples=found.samples,
            divisor=found.batch.count,
        )
        self._order(course, committed, (*found.adding, *course.request.measure))

    def _go_on(self, course: Course, answer: Answer) -> None:
        step = self._frame.advance(course.method, answer)
        course.method = step.state
        if step.request is None:
            course.stage = Stage.DONE
            return
        ended = replace(
            course.order, evaluation=0, groups=0, runs=(), commits=(), samples=0, divisor=None
        )
        self._want(course, step.request, ended)

    def _want(self, course: Course, request: Request, order: Order) -> None:
        """Order the operations that a request begins with, beside what `order` says already."""
        course.request, course.stage, course.prepared = request, Stage.PREPARING, ()
        if request.evaluates:
            self._begin_evaluation(course, course.evaluation.shards)
            order = _opened(order, course.evaluation)
        self._order(course, order, request.prepare)

    def _begun(self) -> tuple[State, Request]:
        step = self._frame.begin()
        if step.request is None:
            message = "a method begins with a request"
            raise AssertionError(message)
        return step.state, step.request

    def _begin_evaluation(self, course: Course, shards: tuple[int, ...]) -> None:
        done, wanted = course.evaluation, self._rules.groups_of(course.request)
        course.evaluation = groups.begun(done.number + 1, wanted, shards, done)

    def _order(
        self, course: Course, order: Order, wanted: tuple[operations.Operation, ...]
    ) -> None:
        iteration = course.method.progress.iteration
        course.order = replace(
            order, number=order.number + 1, iteration=iteration, operations=wanted
        )
        course.answers = {}


def _opened(order: Order, evaluation: Evaluation) -> Order:
    return replace(
        order, evaluation=evaluation.number, groups=evaluation.groups, runs=evaluation.runs
    )
