"""A partition other than the first: it computes its part of the model, and trains that.

It speaks with the shards that hold its parameters, and takes each step that the first one takes.
"""

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from disttrain.coordinator.protocol.fields import Position
from disttrain.coordinator.protocol.messages import Joined
from disttrain.groups.steps import Collective
from disttrain.job import defaults
from disttrain.launch.config import LaunchConfig
from disttrain.replica import strategies
from disttrain.replica.agreement import Act, Together
from disttrain.replica.connection import Connection
from disttrain.replica.membership import Membership
from disttrain.replica.partitions import FollowingPartition
from disttrain.replica.prepared import Prepared
from disttrain.replica.stepper import Stepper

Step = Callable[[Sequence[int]], None]
"""What it does in an act, by the words of its order."""

_OF_CALLS = frozenset({Act.FORWARD, Act.BACKWARD, Act.LOAD})


def steps(
    config: LaunchConfig, ready: Prepared, membership: Membership, joined: Joined, group: Collective
) -> Step:
    """What this process does in each act of its group, which is formed. Raises ModelError."""
    division, spec = ready.division, config.job.spec
    assert division is not None  # noqa: S101  It is a partition.
    following = FollowingPartition(division, group)
    run = defaults.extent(spec, ready.train.count)
    stages = [(strategies.stepped(stage), stage) for stage in defaults.stages(spec)]
    connection = membership.connect(
        joined,
        following.part.module,
        ready.device,
        stages[0][0].outgoing_buffers(stages[0][1]),
        membership.open_ledger(joined),
        part=division.own_part(following.part.module, config.partition),
        agreement=Together(group),
    )
    shards = joined.placement.holders_of(config.partition) if joined.placement else ()
    training = _Training(
        connection,
        [partial(of.stepper, connection, stage, run) for of, stage in stages],
        shards,
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


class _Training:
    """Belongs to the main thread."""

    def __init__(
        self,
        connection: Connection,
        stages: Sequence[Callable[[], Stepper]],
        shards: Sequence[int],
    ) -> None:
        self._connection = connection
        self._stages = list(stages)
        self._shards = shards
        self._stepper: Stepper | None = None
        self._gradient: Tensor | None = None

    def step(self, act: Act, words: Sequence[int]) -> None:
        if act is Act.UPLOAD:
            self._connection.upload(self._shards)
            return
        if act is Act.ASK_FIRST:
            if self._stepper is not None:
                self._connection.fetches.drop()
            self._stepper = self._stages.pop(0)()
            self._connection.ask_first(self._stepper.computes_on)
            return
        stepper = self._stepper
        assert stepper is not None  # noqa: S101  The first act of a stage makes it.
        match act:
            case Act.BEGIN:
                stepper.begin(self._connection.take_first())
            case Act.BEGIN_STEP:
                self._gradient = stepper.begin_step()
            case Act.END_STEP:
                self._end_step(stepper, *words[:3])
            case Act.FLUSH:
                stepper.flush()
            case Act.START_OVER:
                stepper.start_over()
            case Act.FETCH_NOW:
                stepper.fetch_now()
            case Act.FETCH_AGAIN:
                stepper.fetch_again()

    def _end_step(self, stepper: Stepper, samples: int, lease: int, offset: int) -> None:
        gradient = self._gradient
        assert gradient is not None  # noqa: S101  The step has begun.
        position = Position(lease=lease, offset=offset)
        scale = stepper.accrue(gradient, None, samples, position)
        stepper.push()
        stepper.adopt(gradient, scale, samples)
