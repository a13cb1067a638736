"""A shard of Downpour: every push changes the parameters at once."""

from disttrain.holder.values import Values
from disttrain.holder.writing import Cut
from disttrain.parameter_server.applying import Applier
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.shard import Answers, Shard
from disttrain.parameter_server.state import ShardState
from disttrain.state.share import Share
from disttrain.transport.header import Header, Reason, Verb


class DownpourShard(Shard):
    """See `Shard`."""

    def __init__(self, state: ShardState, applier: Applier, records: Records) -> None:
        super().__init__(state, records)
        self.applier = applier
        self._handlers[Verb.PUSH] = self._push

    def make_room(self, share: Share) -> Values:
        return Values(share, self.applier.initial_state)

    def protect(self, cut: Cut | None) -> None:
        self.applier.before_change = None if cut is None else cut.before_change

    def _push(self, header: Header, payload: memoryview) -> Answers:
        unready = self._unready(header)
        if unready:
            return self._refuse(header, *unready)
        answers = self.applier.push(header, payload)
        for answer in answers:
            if answer.header.verb == Verb.REFUSED:
                self.refused[Reason(answer.header.reason).name.lower()] += 1
        return answers
