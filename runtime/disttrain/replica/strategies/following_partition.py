"""A partition other than the first: it computes its part of the model, and trains that.

It speaks with the shards that hold its parameters, and takes each step that the first one takes.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from torch import Tensor

from disttrain.coordinator.protocol.fields import Position
from disttrain.coordinator.protocol.messages import Joined
from disttrain.groups.steps import Collective, follow_until
from disttrain.job import defaults
from disttrain.job.length import Extent
from disttrain.job.spec import Spec
from disttrain.launch.config import LaunchConfig
from disttrain.parameter_server.errors import EvaluationOver
from disttrain.replica import strategies
from disttrain.replica.agreement import Act, Together
from disttrain.replica.connection import Connection
from disttrain.replica.division import Division
from disttrain.replica.flat_vector import Gradient
from disttrain.replica.gradient_check import FrozenParameters
from disttrain.replica.groups import Sums, as_it_is, everybodys
from disttrain.replica.membership import Membership, Trained
from disttrain.replica.partitions import FollowingPartition
from disttrain.replica.stepper import Stepper
from disttrain.replica.strategies.sandblaster import TrialPoint
from disttrain.state.layout import ModelLayout
from disttrain.state.vector import PARAMETERS

Step = Callable[[Sequence[int]], None]
"""What it does in an act, by the words of its order."""

_OF_CALLS = frozenset({Act.FORWARD, Act.BACKWARD, Act.LOAD, Act.GATHER})


def steps(
    config: LaunchConfig,
    division: Division,
    layout: ModelLayout,
    membership: Membership,
    joined: Joined,
    group: Collective,
) -> Step:
    """What this process does in each act of its group, which is formed. Raises ModelError.

    `layout`: of all partitions. `joined`: once the coordinator knows the model and the data.
    """
    spec = config.job.spec
    following = FollowingPartition(division, group, layout)
    run = defaults.extent(spec, joined.train_samples)
    stages = defaults.stages(spec)
    connection = membership.connect(
        joined,
        Trained(
            following.part.module,
            division.device,
            division.own_part(following.part.module, config.partition),
            Together(group),
        ),
        strategies.outgoing_buffers(stages[0]),
        membership.open_ledger(joined),
    )
    measures = partial(follow_until, group, following.step, lambda words: words[0] == Act.MEASURED)
    training = FollowingTraining(
        connection,
        [partial(_stage, connection, stage, run, measures) for stage in stages],
    )

    def step(words: Sequence[int]) -> None:
        act = Act(words[0])
        if act in _OF_CALLS:
            following.step(words)
            return
        if act is Act.BEGIN_STEP:
            following.part.begin_step()
        training.step(act, words[1:])

    return step


def _stage(
    connection: Connection, spec: Spec, run: Extent, measures: Callable[[], None]
) -> "Stage":
    if spec.strategy.sandblaster is not None:
        return _Batches(connection)
    stepper = strategies.stepped(spec).stepper(connection, spec, run)
    return Steps(connection, stepper, measures)


class Stage(ABC):
    """What a strategy does in such a process. Belongs to the main thread."""

    computes_on = PARAMETERS
    """The name of the vector that the model has while it trains."""

    @abstractmethod
    def step(self, act: Act, words: Sequence[int]) -> None:
        """Do what the first process does. Raises GroupLost."""


class Steps(Stage):
    """Of a strategy whose replicas take steps."""

    def __init__(
        self, connection: Connection, stepper: Stepper, measures: Callable[[], None]
    ) -> None:
        """`measures`: takes part in an evaluation, of the values that are there by then."""
        self.computes_on = stepper.computes_on
        self._stepper = stepper
        self._gradient: Tensor | None = None
        self._acts: Mapping[Act, Callable[[], object]] = {
            Act.BEGIN: lambda: stepper.begin(connection.take_first()),
            Act.BEGIN_STEP: self._begin_step,
            Act.FLUSH: stepper.flush,
            Act.START_OVER: stepper.start_over,
            Act.FETCH_NOW: stepper.fetch_now,
            Act.FETCH_AGAIN: stepper.fetch_again,
            Act.MEASURE: lambda: stepper.measure(lambda _: measures()),
            Act.BETWEEN_STEPS: stepper.between_steps,
            Act.FINISH_MEASURING: stepper.finish_measuring,
        }

    def step(self, act: Act, words: Sequence[int]) -> None:
        if act is Act.END_STEP:
            self._end_step(*words[:3])
        else:
            self._acts[act]()

    def _begin_step(self) -> None:
        self._gradient = self._stepper.begin_step()

    def _end_step(self, samples: int, lease: int, offset: int) -> None:
        stepper, gradient = self._stepper, self._gradient
        assert gradient is not None  # noqa: S101  The step has begun.
        position = Position(lease=lease, offset=offset)
        scale = stepper.accrue(gradient, None, samples, position)
        stepper.push()
        stepper.adopt(gradient, scale, samples)


class _Batches(Stage):
    """Of a batch method."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._point = TrialPoint(connection)
        self._sums = Sums(connection)
        self._sum: Gradient | None = None
        self._sent: deque[tuple[Gradient, Future[tuple[int, ...]]]] = deque()
        self._frozen = FrozenParameters(connection.model.tensors)
        self._portions = 0
        self._acts: Mapping[Act, Callable[[], object]] = {
            Act.BEGIN: self._begin,
            Act.BEGIN_STEP: self._begin_portion,
            Act.TAKE_TRIAL: self._take_trial,
            Act.FETCH_NOW: self._point.fetch_now,
            Act.BEGIN_GROUP: self._begin_group,
            Act.ABANDON_GROUP: lambda: self._sums.free(self._own_sum),
            Act.GROUP_SENT: self._group_sent,
        }

    def step(self, act: Act, words: Sequence[int]) -> None:
        if act is Act.ASK_TRIAL:
            self._point.ask(words[0])
        elif act is Act.SEND_GROUP:
            self._send_group(*words[:3])
        else:
            self._acts[act]()

    def _begin(self) -> None:
        self._connection.take_first()
        self._frozen.begin()

    def _begin_portion(self) -> None:
        """The first partition looks after a portion; this one before the next."""
        self._frozen.check_after(self._portions)
        self._portions += 1
        self._connection.model.restore_buffers()

    def _take_trial(self) -> None:
        with suppress(EvaluationOver):
            self._point.take()

    def _begin_group(self) -> None:
        self._sum = self._sums.begin()

    def _send_group(self, attempt: int, evaluation: int, group: int) -> None:
        own = self._own_sum
        self._sent.append((own, self._sums.send(own, attempt, evaluation, group, as_it_is)))

    def _group_sent(self) -> None:
        own, sent = self._sent.popleft()
        with suppress(EvaluationOver):
            everybodys(self._connection, sent)
        self._sums.free(own)

    @property
    def _own_sum(self) -> Gradient:
        assert self._sum is not None  # noqa: S101  The group has begun.
        return self._sum


class FollowingTraining:
    """What a process trains that speaks with the shards of its part. For the main thread."""

    def __init__(
        self,
        connection: Connection,
        stages: Sequence[Callable[[], "Stage"]],
    ) -> None:
        self._connection = connection
        self._stages = list(stages)
        self._stage: Stage | None = None

    def step(self, act: Act, words: Sequence[int]) -> None:
        if act is Act.UPLOAD:
            self._connection.upload(())
        elif act is Act.ASK_FIRST:
            if self._stage is not None:
                self._connection.fetches.drop()
            self._stage = self._stages.pop(0)()
            self._connection.ask_first(self._stage.computes_on)
        else:
            assert self._stage is not None  # noqa: S101  The first act of a stage makes it.
            self._stage.step(act, words)
