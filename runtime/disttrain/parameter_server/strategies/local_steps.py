"""A shard of local steps: what a push carries is a difference of parameters, not a gradient."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from disttrain.holder.values import Values
from disttrain.job import defaults
from disttrain.job.spec import Spec
from disttrain.job.staleness import Maximum, Staleness
from disttrain.job.strategies.local_steps import Adopt, LocalSteps
from disttrain.parameter_server import arithmetic
from disttrain.parameter_server.deliveries import MostWork, SenderIncarnation, too_heavy
from disttrain.parameter_server.holder_side import Answer, Refused, ShardState
from disttrain.parameter_server.merging import Merging
from disttrain.parameter_server.norm_bound import NormBound
from disttrain.parameter_server.outer_rules.merged import MergedRule
from disttrain.parameter_server.quorum import Work
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.strategies.downpour import PushedGradients
from disttrain.state.fragments import WHOLE, Fragment
from disttrain.state.share import Part
from disttrain.transport.header import Header, Reason, Verb


class PushedDifferences(PushedGradients):
    """Differences are counted, applied at most once and refused as gradients are."""

    of = LocalSteps

    bound: NormBound | None = None
    """None: a push may be as long as it is."""
    merging: Merging | None = None
    """None: each push changes the parameters by itself."""

    @classmethod
    def made(cls, stage: Spec, state: ShardState, records: Records) -> Self:
        strategy = stage.strategy.only_local_steps
        rule, extent = arithmetic.rule_for(cls.config_of(stage)), partial(defaults.extent, stage)
        most = strategy.maximum_age
        maximum = None if most is None else Maximum(updates=most)
        side = cls(rule, state, records, extent, staleness=Staleness(maximum=maximum))
        side.fragments = strategy.fragments
        if strategy.maximum_norm is not None:
            side.bound = NormBound(strategy.maximum_norm)
        if isinstance(rule, MergedRule):
            waits = strategy.adopt is Adopt.REPLACE
            side.merging = Merging(rule, state, records, waits=waits)
        side.most_work = MostWork(strategy.steps, defaults.samples_per_step(stage))
        return side

    @staticmethod
    def config_of(stage: Spec) -> Any:
        return stage.strategy.only_local_steps.shard_rule(stage.replicas.count)

    def begin(
        self, values: Values, description: Mapping[str, str], returned_to: int | None
    ) -> None:
        super().begin(values, description, returned_to)
        if self.merging is not None:
            self.merging.restore()

    @property
    def due_at(self) -> float | None:
        return None if self.merging is None else self.merging.ends_at

    def advance(self) -> None:
        if self.merging is not None:
            for fragment in self.merging.due(self.state.deliveries.admitted):
                self.finish(fragment)

    def finish(self, fragment: int | None = None) -> None:
        for number in sorted(self.state.gathered):
            if self.merging is not None and fragment in (None, number):
                self.merging.merge(number, self.values, self.rate)

    def fragment(self, header: Header) -> Fragment:
        number, count = header.fragment, self.fragments
        if not number and (count == 1 or header.verb == Verb.FETCH):
            return WHOLE
        if not 0 < number <= count or count == 1:
            sentence = f"spec.strategy.localSteps.fragments is {count}, got fragment {number}"
            raise Refused(Reason.MALFORMED, sentence)
        return Fragment(number - 1, count)

    def unfetchable(self, header: Header) -> Refused | None:
        if self.merging is None:
            return None
        vector = self.values.share.placement.vector(header.vector)
        if vector == self.values.trained:
            self.merging.looked(header.sender)
        if not self.merging.holds(header.sender, vector, self.fragment(header)):
            return None
        sentence = f"push of replica {header.sender} waits for the quorum"
        return Refused(Reason.BUSY, sentence, is_repeat=True)

    def _complete(self, header: Header, rate: float) -> Answer:
        answer = super()._complete(header, rate)
        if self.merging is not None:
            work = Work(header.local_samples, header.local_steps)
            self.merging.pushed(header.sender, self.fragment(header), work)
            self.advance()
        return answer

    def drop(self, incarnation: SenderIncarnation) -> None:
        super().drop(incarnation)
        if self.bound is not None:
            self.bound.drop(incarnation)
        if self.merging is not None:
            self.merging.forget([incarnation.sender])

    def _check_values(self, part: Part, header: Header, sent: Tensor) -> None:
        super()._check_values(part, header, sent)
        if self.merging is not None and header.sender >= self.config.replicas:
            sentence = f"spec.replicas.count is {self.config.replicas}, got index {header.sender}"
            raise Refused(Reason.MALFORMED, sentence)
        most = None if self.merging is None else self.most_work
        if most is not None and (said := too_heavy(header, most)):
            raise Refused(Reason.MALFORMED, said)
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
