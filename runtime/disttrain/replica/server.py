"""A replica's process: what `disttrain run` and a pod start."""

import signal
import sys

import torch

from disttrain.coordinator.errors import JobOver
from disttrain.groups.errors import GroupLost
from disttrain.groups.steps import Leader
from disttrain.launch.config import LaunchConfig
from disttrain.launch.exit_code import ExitCode
from disttrain.replica import evaluating, follower, forming, prepared, strategies
from disttrain.replica.cancellation import Cancelled
from disttrain.replica.forming import GroupNotFormed
from disttrain.replica.membership import LEAVE_SECONDS, Membership
from disttrain.replica.prepared import Prepared
from disttrain.replica.replica import Replica
from disttrain.replica.served_metrics import ServedMetrics
from disttrain.replica.training import TrainingInputs
from disttrain.replica.watchdog import Watchdog
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter. The default, 5 ms, is several small steps."""


def main(config: LaunchConfig) -> int:
    """Run the process until it is told to end; the exit code.

    Raises FinalError for a bad task, or once the run's owner has removed this replica.
    """
    torch.set_num_threads(config.threads)
    if config.evaluation is not None:
        return evaluating.main(config, config.evaluation)
    if config.partition:
        return follower.main(config)
    sys.setswitchinterval(_SWITCH_SECONDS)
    # First, so that somebody who asks whether this process lives has an answer: a task may be slow.
    served = ServedMetrics(config.metrics_address)
    ready = prepared.prepare(config, strategies.check_task)
    membership = Membership(config)
    try:
        code = _live(config, ready, membership, served)
        membership.coordinator.require_wanted()
    except JobOver as error:
        LOG.info("came too late", reason=error)
        return ExitCode.COMPLETE
    except GroupNotFormed as error:
        LOG.warning("has no group", reason=error)
        return error.exit_code
    else:
        return code
    finally:
        membership.close()


def _live(
    config: LaunchConfig, ready: Prepared, membership: Membership, served: ServedMetrics
) -> int:
    introduction = membership.introduction(served.address)
    joined = membership.join(ready.introduce(introduction), served.latest_report)
    leader = None
    if config.processes > 1:
        # Whoever joins the others may wait for them for long.
        signal.signal(signal.SIGTERM, lambda *_: membership.cancellation.cancel())
        leader = forming.led(config, membership, joined.member)
        try:
            ready = _with_others(config, ready, leader)
        except (GroupLost, Cancelled) as error:
            raise forming.not_formed(membership, joined.member, error) from error
        if ready.of_several is not None:
            served.traffic = leader.group.peers.traffic
    else:
        logs.rename(joined.member.name)
    training = strategies.training(TrainingInputs(config.job.spec, ready, membership, joined))
    with Watchdog(config.job.spec.replicas.call_timeout_seconds):
        replica = Replica(ready, membership, joined, training, leader)
        served.source = training.report
        served.connection = membership.connection
        patience = LEAVE_SECONDS[config.supervisor]
        signal.signal(signal.SIGTERM, lambda *_: replica.leave(patience))
        served.health.is_ready = True
        return replica.run()


def _with_others(config: LaunchConfig, ready: Prepared, leader: Leader) -> Prepared:
    """What this process has prepared, and what the others of its replica do.

    A divided model is tried by all. Raises TaskError, GroupLost and Cancelled.
    """
    together = ready.with_others(leader, config.processes)
    if together.of_several is not None:
        prepared.try_out(config.job.spec, together)
    return together
