"""A process of a replica other than the first: it takes part in what that announces."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from disttrain.coordinator.errors import JobOver, MemberFenced
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.messages import Join, Joined
from disttrain.groups import steps
from disttrain.groups.errors import GroupLost
from disttrain.groups.steps import Collective
from disttrain.launch.config import LaunchConfig
from disttrain.launch.exit_code import ExitCode
from disttrain.parameter_server.errors import Fenced
from disttrain.replica import division, forming, prepared, strategies, task_model
from disttrain.replica.cancellation import Cancelled
from disttrain.replica.membership import LEAVE_SECONDS, Membership
from disttrain.replica.prepared import Prepared
from disttrain.replica.served_metrics import ServedMetrics
from disttrain.replica.strategies import following_partition, following_rank, following_shard
from disttrain.replica.strategies.following_rank import Step
from disttrain.replica.task_model import TaskModel
from disttrain.replica.watchdog import Watchdog
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_END_SECONDS = 5.0
"""For the first process to say that it ends, once the job has."""


class _Introduced(NamedTuple):
    """What a process is in its job, once it has joined."""

    membership: Membership
    served: ServedMetrics
    join: Join
    joined: Joined


_StepsOf = Callable[[_Introduced, Collective], Step]


def main(config: LaunchConfig) -> int:
    """Take part until the first process, or the coordinator, ends it; the exit code.

    Raises FinalError for a bad task.
    """
    served = ServedMetrics(config.metrics_address)
    spec = config.job.spec
    make = _of_partition if spec.replicas.partitions > 1 else _of_rank
    introduce, steps_of = make(config)
    membership = Membership(config)
    try:
        join = introduce(membership.introduction(served.address))
        # Its report says nothing, but what it serves is brought up to date.
        joined = membership.join(join, served.latest_report)
        introduced = _Introduced(membership, served, join, joined)
        follower = _Follower(
            config, membership, joined.member, served, partial(steps_of, introduced)
        )
        # It has its part of the model, and keeps nothing of the whole one.
        del introduce, steps_of
        with Watchdog(spec.replicas.call_timeout_seconds):
            return follower.run()
    except JobOver as error:
        LOG.info("came too late", reason=error)
        return ExitCode.COMPLETE
    finally:
        membership.close()


class _Follower:
    """Belongs to the main thread, but for `leave`."""

    def __init__(
        self,
        config: LaunchConfig,
        membership: Membership,
        member: MemberId,
        served: ServedMetrics,
        steps_of: Callable[[Collective], Step],
    ) -> None:
        """`steps_of`: makes what it computes in a step of its group, and is called once."""
        self._steps_of = steps_of
        self._config = config
        self._membership = membership
        self._member = member
        self._served = served
        self._formed = False
        self._leaving = False
        self._told: ExitCode | None = None
        """How the coordinator has told it to end."""
        self._ends_at = math.inf
        patience = LEAVE_SECONDS[config.supervisor]
        signal.signal(signal.SIGTERM, lambda *_: self.leave(patience))

    def leave(self, patience_seconds: float) -> None:
        """End with the first process, which hears of it and drains, or after so long without it."""
        self._leaving = True
        cancellation = self._membership.cancellation
        if not self._formed:
            cancellation.cancel()
            return
        impatience = threading.Timer(patience_seconds, cancellation.cancel)
        impatience.daemon = True
        impatience.start()

    def run(self) -> ExitCode:
        try:
            return self._follow()
        except (Fenced, MemberFenced) as error:
            LOG.warning("was declared dead", incarnation=self._member.incarnation, error=error)
            return ExitCode.RESTART
        except (GroupLost, Cancelled) as error:
            LOG.warning("its group is over", incarnation=self._member.incarnation, error=error)
            if self._told is not None:
                return self._told
            return forming.end_of(self._membership, self._member, error)

    def _follow(self) -> ExitCode:
        group = forming.formed(self._config, self._membership, self._member, self._check)
        self._formed = True
        self._served.health.is_ready = True
        LOG.info("takes part", incarnation=self._member.incarnation)
        code = ExitCode(steps.follow(group, self._made_steps(group), lambda: self._leaving))
        LOG.info("ends with its group", code=code.name)
        self._membership.told_to_end()
        return code

    def _made_steps(self, group: Collective) -> Step:
        steps_of = self._steps_of
        del self._steps_of
        return steps_of(group)

    def _check(self) -> None:
        """Raises Cancelled when this process is to end: at the job's end after the first one."""
        cancellation = self._membership.cancellation
        if not cancellation.is_cancelled:
            return
        if self._told is None:
            self._told = self._membership.told_to_end()
            self._ends_at = time.monotonic() + _END_SECONDS
        is_over = self._told is ExitCode.COMPLETE and self._formed
        if not is_over or time.monotonic() >= self._ends_at:
            cancellation.check()


def _of_rank(config: LaunchConfig) -> tuple[Callable[[Join], Join], _StepsOf]:
    """How a process introduces itself that reads data, and what makes its steps."""
    ready = prepared.prepare(config, strategies.check_task)
    return ready.introduce, partial(_steps_of_rank, config, ready)


def _steps_of_rank(
    config: LaunchConfig, ready: Prepared, introduced: _Introduced, group: Collective
) -> Step:
    membership, served, _, joined = introduced
    if ready.division is None:
        return following_rank.steps(config, ready, membership, joined, group)
    with _connecting(membership, served, group):
        return following_shard.steps(config, ready, membership, joined, group)


def _of_partition(config: LaunchConfig) -> tuple[Callable[[Join], Join], _StepsOf]:
    """The same of one that reads none: its group tells it how the model is divided."""
    made = task_model.make(config, strategies.check_task)
    return lambda join: join, partial(_steps_of_partition, config, made)


def _steps_of_partition(
    config: LaunchConfig, made: TaskModel, introduced: _Introduced, group: Collective
) -> Step:
    membership, served, join, _ = introduced
    divided = made.in_partitions(division.told_sample(group))
    layout = made.tensors_in(divided).layout
    # By now the coordinator has heard of the model and the data, from the first process.
    try:
        joined = membership.join(
            replace(join, layout=layout), served.latest_report, membership.cancellation.check
        )
    except TimeoutError as error:
        # As long as it waits for nobody else, the whole replica begins anew.
        raise GroupLost(str(error)) from error
    with _connecting(membership, served, group):
        return following_partition.steps(config, divided, layout, membership, joined, group)


@contextmanager
def _connecting(membership: Membership, served: ServedMetrics, group: Collective) -> Iterator[None]:
    """Around what connects a process with shards, of which it serves metrics."""
    served.traffic = group.peers.traffic
    yield
    served.connection = membership.connection
