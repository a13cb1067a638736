"""A shard that merges by a quorum, whose clock stands still until a test moves it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from builders import placements
from builders.jobs import a_job
from builders.transports import a_chunk_header
from disttrain.holder import writing
from disttrain.parameter_server import restoring, strategies
from disttrain.parameter_server.holder_side import Answer, ShardState
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.restoring import RestoredShard
from disttrain.parameter_server.shard import Shard
from disttrain.state.fragments import Fragment
from disttrain.state.share import Part, Share
from disttrain.state.vector import Vector
from disttrain.transport.header import Header, Reason, Verb

CHUNK, REPLICAS = 4, 4
OWN = placements.PARAMETERS.beside("own")
RATE, MOMENTUM, GRACE_SECONDS = 0.7, 0.9, 5.0


class Merging:
    """Elements that are all 0 at first; two replicas are a quorum."""

    def __init__(
        self,
        adopt: str = "replace",
        live: Sequence[int] = range(REPLICAS),
        *,
        elements: int = 12,
        fragments: int = 1,
        grace: str = str(GRACE_SECONDS),
    ) -> None:
        local = (
            f"{{steps: {32 * fragments}, fragments: {fragments}, quorum: 2, "
            f"graceSeconds: {grace}, adopt: {adopt}, "
            f"outer: {{nesterov: {{learningRate: {RATE}, momentum: {MOMENTUM}}}}}}}"
        )
        self.job = a_job(
            "spec.strategy.downpour=null",
            f"spec.strategy.localSteps={local}",
            f"spec.replicas.count={REPLICAS}",
        )
        self.now = 100.0
        self.elements = elements
        self.fragments = [Fragment(number, fragments) for number in range(fragments)]
        self.layout = placements.a_placement({placements.PARAMETERS: elements, OWN: elements}, 1)
        self.incarnations = dict.fromkeys(range(REPLICAS + 1), 1)
        self.live = dict.fromkeys(live, 1)
        self.sequences = dict.fromkeys(range(REPLICAS + 1), 0)
        self._open(None)

    def _open(self, restored: RestoredShard | None) -> None:
        self.state = ShardState(index=0, incarnation=1, clock=lambda: self.now)
        self.shard = Shard(strategies.stages(self.job.spec, self.state, Records(incarnation=1)))
        if restored is None:
            self.shard.configure(self.layout, 4 * CHUNK)
            self.shard.initialise()
        else:
            self.shard.restore(restored)
        self.shard.admit_only(self.live)

    @property
    def share(self) -> Share:
        return Share(self.layout, 0, 4 * CHUNK)

    def restart(self) -> None:
        """From a picture of this moment."""
        assert self.state.values is not None
        notes = writing.cut(1, self.state.values, self.state.notes()).notes
        rule = self.job.spec.strategy.rule.update_rule
        values = strategies.makers(self.job.spec)[rule](self.share, {})
        for vector, tensor in self.state.values.vectors.items():
            values.tensor(vector).copy_(tensor)
        self._open(
            RestoredShard(
                checkpoint=1,
                update_rule=rule,
                values=values,
                version=notes.version,
                samples=self.state.samples,
                delivered=restoring.delivered_of(notes),
                gathered=restoring.gathered_of([notes]),
            )
        )

    def replace(self, live: Sequence[int]) -> None:
        """All others are dead; who was dead begins anew."""
        for sender in set(live) - self.live.keys():
            self.incarnations[sender] += 1
            self.sequences[sender] = 0
        self.live = {sender: self.incarnations[sender] for sender in live}
        self.shard.admit_only(self.live)
        self.pass_time(0.0)

    def header(self, verb: Verb, sender: int) -> Header:
        header = a_chunk_header(verb, CHUNK, incarnation=1, receiver_incarnation=1)
        return header._replace(sender=sender, incarnation=self.incarnations[sender])

    def said(self, number: int) -> int:
        """What headers call a fragment."""
        return 0 if len(self.fragments) == 1 else self.fragments[number].on_the_wire

    def chunks(self, number: int) -> tuple[Part, ...]:
        """Of a fragment."""
        return self.share.fragment_chunks(placements.PARAMETERS, self.fragments[number])

    def chunk(
        self,
        sender: int,
        place: int,
        difference: Tensor,
        samples: int = 8,
        steps: int = 1,
        number: int = 0,
        *,
        said: int | None = None,
        counted: int | None = None,
    ) -> list[Answer]:
        """One of the push of a fragment that is under way; `said`: what its header calls it.

        `counted`: samples that schedules go by; those that weigh, if left out.
        """
        parts = self.chunks(number)
        part = parts[place]
        header = self.header(Verb.PUSH, sender)._replace(
            sequence=self.sequences[sender] + 1,
            chunks=len(parts),
            chunk=place,
            first=part.first,
            count=part.count,
            samples=samples if counted is None else counted,
            local_samples=samples,
            local_steps=steps,
            fragment=self.said(number) if said is None else said,
        )
        payload = difference[part.first : part.first + part.count].contiguous()
        return list(self.shard.handle(header, payload.numpy().data.cast("B")))

    def push(
        self, sender: int, difference: Tensor, samples: int = 8, steps: int = 1, number: int = 0
    ) -> None:
        """A fragment of the difference."""
        for place in range(len(self.chunks(number))):
            answers = self.chunk(sender, place, difference, samples, steps, number)
            assert all(answer.header.reason == Reason.NONE for answer in answers)
        self.sequences[sender] += 1

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.shard.stage.advance()

    def fetch(self, sender: int, vector: Vector = OWN, number: int | None = None) -> Tensor | None:
        """All of a vector, or a fragment; None: it is to be asked for again."""
        fragment = 0 if number is None else self.said(number)
        chunks = len(self.chunks(number)) if number is not None else self.share.num_chunks(vector)
        found = []
        for chunk in range(chunks):
            header = self.header(Verb.FETCH, sender)._replace(
                vector=self.layout.number(vector), chunk=chunk, count=1, fragment=fragment
            )
            found += [
                torch.frombuffer(bytearray(answer.payload), dtype=torch.float32)
                for answer in self.shard.handle(header, memoryview(b""))
                if answer.header.verb == Verb.FETCHED
            ]
        return torch.cat(found) if found else None

    @property
    def parameters(self) -> Tensor:
        assert self.state.values is not None
        return self.state.values.tensor(placements.PARAMETERS).clone()
