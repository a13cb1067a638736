"""Downpour as a manifest describes it: asynchronous SGD with a sharded parameter server."""

from typing import Annotated

from pydantic import Field

from disttrain.job.optimizer import Optimizer
from disttrain.job.section import Count, NotNegative, Section


class WarmStart(Section):
    """One replica trains alone first, as in DistBelief."""

    samples: Count = Field(examples=[5000])
    """Samples that replica 0 processes before the others begin."""


class Downpour(Section):
    """Downpour SGD (DistBelief 4.1): asynchronous replicas, a sharded parameter server."""

    push_every: Count = 1
    """Steps whose gradients are summed into one push; n_push in the papers."""

    fetch_every: Count = 1
    """Steps between two fetches of the parameters; n_fetch in the papers."""

    max_in_flight: Annotated[int, Field(ge=0, le=16)] = 1
    """Unanswered pushes that computing may run ahead of. 0: wait for the reply of each push and
    for the fetch that follows, which with one replica makes the run deterministic."""

    local_learning_rate: NotNegative | None = None
    """Rate of a replica's own steps between fetches, before the optimizer's schedule, which it
    follows. null: the optimizer's rate for sgd and momentum, 0 (no local steps) for adagrad."""

    optimizer: Optimizer = Field(examples=[{"adagrad": {"learningRate": 0.05}}])
    """The update rule on the shards."""

    warm_start: WarmStart | None = None
    """One replica alone first. null: all replicas begin at once."""
