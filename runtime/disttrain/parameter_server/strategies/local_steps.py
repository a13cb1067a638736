"""A shard of local steps: what a push carries is a difference of parameters, not a gradient."""

from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from disttrain.job import defaults
from disttrain.job.spec import Spec
from disttrain.job.staleness import Maximum, Staleness
from disttrain.job.strategies.local_steps import LocalSteps
from disttrain.parameter_server import arithmetic
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import Refused, ShardState
from disttrain.parameter_server.norm_bound import NormBound
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.strategies.downpour import PushedGradients
from disttrain.state.share import Part
from disttrain.transport.header import Header, Reason


class PushedDifferences(PushedGradients):
    """Differences are counted, applied at most once and refused as gradients are."""

    of = LocalSteps

    bound: NormBound | None = None
    """None: a push may be as long as it is."""

    @classmethod
    def made(cls, stage: Spec, state: ShardState, records: Records) -> Self:
        strategy = stage.strategy.only_local_steps
        rule, extent = arithmetic.rule_for(strategy.outer.rule), partial(defaults.extent, stage)
        most = strategy.maximum_age
        maximum = None if most is None else Maximum(updates=most)
        side = cls(rule, state, records, extent, staleness=Staleness(maximum=maximum))
        if strategy.maximum_norm is not None:
            side.bound = NormBound(strategy.maximum_norm)
        return side

    @staticmethod
    def config_of(stage: Spec) -> Any:
        return stage.strategy.only_local_steps.outer.rule

    def drop(self, incarnation: SenderIncarnation) -> None:
        super().drop(incarnation)
        if self.bound is not None:
            self.bound.drop(incarnation)

    def _check_values(self, part: Part, header: Header, sent: Tensor) -> None:
        super()._check_values(part, header, sent)
        if self.bound is None or not part.vector.is_trained:
            return
        norm, is_first = header.scale * float(torch.linalg.vector_norm(sent)), header.chunk == 0
        if not self.bound.takes(SenderIncarnation.of(header), norm, is_first=is_first):
            sentence = (
                f"push {header.sequence} is longer than localSteps.maximumNorm, which is "
                f"{self.bound.most:g}: its replica has to scale it down"
            )
            raise Refused(Reason.MALFORMED, sentence)
        if is_first and header.scale < 1:
            self.records.shortened += 1
