"""What differences of ones make of the parameters, by what the shards' ledgers tell."""

from collections import defaultdict
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from disttrain.parameter_server.ledger import Kind
from disttrain.state.fragments import Fragment
from disttrain.state.share import Share
from simulation.chaos import CHUNK_BYTES, Chaos
from simulation.told import Told
from simulation.world import Difference, PushName

Values: TypeAlias = NDArray[np.floating[Any]]
Cuts: TypeAlias = dict[int, slice]
"""By the first element, what a chunk holds."""


def applied(chaos: Chaos) -> Values:
    """The parameters after all changes that are in the shards' values at the end."""
    world, placement = chaos.world, chaos.coordinator.state.placement
    assert placement is not None
    strategy = world.job.spec.strategy.only_local_steps
    made = np.full(world.parameters, world.start)
    for index, said in enumerate(chaos.told):
        share = Share(placement, index, CHUNK_BYTES)
        cuts = [
            {
                part.first: slice(part.first, part.first + part.count)
                for part in share.fragment_chunks(
                    share.trained, Fragment(number, strategy.fragments)
                )
            }
            for number in range(strategy.fragments)
        ]
        if strategy.quorum is None:
            _apply(said, cuts, made)
        else:
            _merge(world.differences, said, cuts, made)
    return made


def _apply(said: Told, cuts: list[Cuts], made: Values) -> None:
    """Each difference is divided by the replicas that lived when its first chunk came."""
    lived: dict[PushName, int] = {}
    for change in said.changes:
        if change.kind is Kind.CHUNK_APPLIED:
            (cut,) = (each[change.first] for each in cuts if change.first in each)
            made[cut] -= 1.0 / lived.setdefault(change.push, change.live_replicas)


def _merge(
    differences: dict[PushName, Difference], said: Told, cuts: list[Cuts], made: Values
) -> None:
    """The weighted mean of what replicas have gathered; by fragment and replica."""
    gathered: dict[tuple[int, int], Values] = defaultdict(lambda: np.zeros_like(made))
    work: dict[int, dict[int, list[Difference]]] = defaultdict(lambda: defaultdict(list))
    for change in said.changes:
        if change.kind is Kind.MERGED:
            present = {one: _weight(of) for one, of in work.pop(change.chunk).items()}
            for sender, weight in present.items():
                made -= weight / sum(present.values()) * gathered.pop((change.chunk, sender))
            continue
        difference = differences[change.push]
        if change.kind is Kind.PUSHED:
            work[difference.fragment][change.push.sender].append(difference)
        elif change.first in cuts[difference.fragment]:
            cut = cuts[difference.fragment][change.first]
            gathered[difference.fragment, change.push.sender][cut] += 1.0


def _weight(pushed: list[Difference]) -> float:
    """Samples times samples of a step."""
    samples, steps = sum(one.samples for one in pushed), sum(len(one.ranges) for one in pushed)
    return samples**2 / steps


def missing(chaos: Chaos) -> list[str]:
    """Which samples count although a fragment of the model lacks them.

    What a shard loses as it dies, it may lose of one fragment alone.
    """
    found: list[str] = []
    if chaos.rolled_back:
        return found
    for index, said in enumerate(chaos.told):
        counted = {each for push in said.held for each in chaos.world.pushed[push]}
        differences = [chaos.world.differences[push] for push in said.held]
        for fragment in range(chaos.world.job.spec.strategy.only_local_steps.fragments):
            here = {each for one in differences if one.fragment == fragment for each in one.ranges}
            if counted - here:
                found.append(f"shard {index} counts what fragment {fragment} lacks")
    return found
