"""What `disttrain plan` tells of the ranks of a replica, whose steps it does not price."""

from collections.abc import Iterator
from typing import NamedTuple

from torch import nn

from disttrain.cli.plan_text import byte_size
from disttrain.job.roles import Inner, Replicas
from disttrain.replica import pieces
from disttrain.replica.parts import Part


class OfRank(NamedTuple):
    """The first process of a replica, which has the most."""

    ranks: int
    inner: Inner
    parameters: int
    model_parameters: int
    """Of all ranks together."""
    nbytes: int
    """Of its parameters and their gradients, without optimizer state and activations."""
    samples: int
    """Of each batch."""

    @classmethod
    def of(cls, replicas: Replicas, model: nn.Module, samples: int) -> "OfRank | None":
        """With a batch of `samples`. None: replicas have no ranks."""
        if replicas.ranks == 1:
            return None
        inner = replicas.inner or Inner.DDP
        divided_among = replicas.ranks if inner is Inner.FSDP2 else 1
        parameters = nbytes = whole = 0
        for each in model.parameters():
            own = _of_first(each, divided_among)
            parameters += own
            nbytes += own * each.element_size() * (1 + each.requires_grad)
            whole += each.numel()
        counted = Part(0, replicas.ranks).counted(samples)
        return cls(replicas.ranks, inner, parameters, whole, nbytes, counted)

    def lines(self) -> Iterator[str]:
        """What a person reads."""
        has = f"{self.parameters:,} of {self.model_parameters:,} parameters"
        at_most = "at most " if self.inner is Inner.FSDP2 else ""
        yield (
            f"each of {self.ranks} ranks ({self.inner.value}) has {at_most}{has}, with gradients "
            f"{byte_size(self.nbytes)}, and computes at most {self.samples} samples of a batch"
        )
        yield (
            "the time of ranks is not planned: what follows is of partitions, which replicas can "
            "have instead"
        )


def _of_first(parameter: nn.Parameter, ranks: int) -> int:
    """Elements of a parameter that the first of the ranks has."""
    length = parameter.shape[0] if parameter.dim() else 1
    rows: int = pieces.rows(length, 0, ranks).stop
    return parameter.numel() // max(length, 1) * rows
