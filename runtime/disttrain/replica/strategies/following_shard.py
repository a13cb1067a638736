"""A rank other than the first with FSDP2: its part of each batch, and its rows of the parameters.

It speaks with the shards that hold its rows, and takes each step that the first rank takes.
"""

from collections.abc import Sequence
from functools import partial

from disttrain.coordinator.protocol.messages import Joined
from disttrain.groups.steps import Collective, follow_until
from disttrain.job import defaults
from disttrain.launch.config import LaunchConfig
from disttrain.replica import strategies, task_calls
from disttrain.replica.agreement import Act, Together
from disttrain.replica.membership import Membership, Trained
from disttrain.replica.pieces import Sharding
from disttrain.replica.pipeline import Loaded
from disttrain.replica.prepared import Prepared
from disttrain.replica.sharded_model import FollowingShard, ShardedBatches, batch_of
from disttrain.replica.strategies.following_partition import FollowingTraining, Steps
from disttrain.replica.strategies.following_rank import PartialLosses, Step, batches_of

_OF_EVALUATIONS = frozenset({Act.EVALUATE, Act.LOAD, Act.GATHER})


def steps(
    config: LaunchConfig, ready: Prepared, membership: Membership, joined: Joined, group: Collective
) -> Step:
    """What this process does in each act of its group, which is formed. Raises ModelError."""
    sharding, spec, task = ready.division, config.job.spec, ready.task
    assert isinstance(sharding, Sharding)  # noqa: S101  It is a rank of such a replica.
    following = FollowingShard(sharding, group, ready.tensors.layout)
    rank = following.rank
    connection = membership.connect(
        joined,
        Trained(
            rank.pieces.module,
            ready.device,
            sharding.own_part(config.partition),
            Together(group),
        ),
        strategies.outgoing_buffers(spec),
        membership.open_ledger(joined),
    )
    evaluates = partial(following.step, task)
    measures = partial(follow_until, group, evaluates, lambda words: words[0] == Act.MEASURED)

    run = defaults.extent(spec, ready.train.count)

    def stage() -> Steps:
        stepper = strategies.stepped(spec).stepper(connection, spec, run)
        stepper.divide_among(ShardedBatches(rank, connection.model))
        return Steps(connection, stepper, measures)

    training = FollowingTraining(connection, [stage])
    batches = batches_of(spec, ready, membership, joined, rank.part)
    place = task_calls.mover(ready.device)
    losses = PartialLosses(
        partial(rank.loss, lambda batch, context: task.loss(rank.model, place(batch), context)),
        rank.part,
        joined.seed,
    )
    announced: tuple[Loaded, int] | None = None

    def step(words: Sequence[int]) -> None:
        nonlocal announced
        act, told = Act(words[0]), words[1:]
        if act in _OF_EVALUATIONS:
            evaluates(words)
        elif act is Act.BATCH:
            order = batch_of(told)
            announced = batches.find(order), order.samples
        else:
            training.step(act, told)
        if act is Act.BEGIN_STEP and announced is not None:
            (loaded, samples), announced = announced, None
            rank.samples = len(loaded.item.indices)
            losses.compute(loaded, samples)

    return step
