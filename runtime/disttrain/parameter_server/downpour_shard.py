"""A shard of Downpour: every push changes the parameters at once."""

from typing import Any

from disttrain.holder.values import Values
from disttrain.holder.writing import Cut
from disttrain.parameter_server.applying import Applier
from disttrain.parameter_server.deliveries import Delivered, SenderLife
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.shard import Answers, Shard
from disttrain.parameter_server.state import ShardState
from disttrain.parameter_server.update_rule import Rule
from disttrain.state.share import Part, Share
from disttrain.transport.header import Header, Reason, Verb


class DownpourShard(Shard):
    """See `Shard`."""

    def __init__(self, state: ShardState, rule: Rule[Any], records: Records) -> None:
        super().__init__(state, records)
        self.applier = Applier(state, rule, records)
        self._handlers[Verb.PUSH] = self._push

    def make_room(self, share: Share) -> Values:
        return Values(share, self.applier.rule.config.initial_state)

    def protect(self, cut: Cut | None) -> None:
        self.applier.before_change = None if cut is None else cut.before_change

    def fence(self, life: SenderLife) -> Delivered:
        self.applier.drop_sender(life)
        return super().fence(life)

    def _served(self, header: Header, part: Part) -> memoryview:
        if part.vector.is_trained and self.applier.rule.serves_anew:
            return self.applier.serve(self._values, part, header)
        return super()._served(header, part)

    def _push(self, header: Header, payload: memoryview) -> Answers:
        unready = self._unready(header)
        if unready:
            return self._refuse(header, *unready)
        answers = self.applier.push(header, payload)
        for answer in answers:
            if answer.header.verb == Verb.REFUSED:
                self.refused[Reason(answer.header.reason).name.lower()] += 1
        return answers
