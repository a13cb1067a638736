"""What a strategy is on a shard, and the state and answers that all of its stages share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

from disttrain.coordinator.protocol import commands
from disttrain.holder.values import Notes, Values
from disttrain.holder.writing import Cut
from disttrain.job.spec import Spec
from disttrain.parameter_server import restoring
from disttrain.parameter_server.deliveries import Decision, Deliveries, SenderIncarnation
from disttrain.parameter_server.messages import Version
from disttrain.parameter_server.quorum import Gathered
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.step_counts import StepCounts
from disttrain.state.fragments import WHOLE, Fragment
from disttrain.state.placement import Range
from disttrain.state.share import Part, Share
from disttrain.state.vector import Vector
from disttrain.transport.header import Header, Reason, Role, Verb


class Answer(NamedTuple):
    """One message to the peer that asked. Copy the payload before anything else is done."""

    header: Header
    payload: bytes | memoryview = b""


class Refused(Exception):
    """A request is not carried out, and its sender is told why."""

    def __init__(self, reason: Reason, sentence: str, *, is_repeat: bool = False) -> None:
        """`is_repeat`: it belongs to a push of which a chunk was refused before."""
        super().__init__(sentence)
        self.reason = reason
        self.is_repeat = is_repeat


REASONS = {
    Decision.OUT_OF_ORDER: Reason.OUT_OF_ORDER,
    Decision.UNKNOWN_SENDER: Reason.UNKNOWN_SENDER,
    Decision.OLD_INCARNATION: Reason.OLD_INCARNATION,
    Decision.REFUSED_BEFORE: Reason.NOT_FINITE,
}


@dataclass(slots=True)
class ShardState:
    """Belongs to the shard's one thread."""

    index: int
    incarnation: int
    values: Values | None = None
    """None until the coordinator has told the placement."""
    deliveries: Deliveries = field(default_factory=Deliveries)
    is_initialised: bool = False
    """Whether every value was uploaded or restored."""
    count: int = 0
    """Updates in the values."""
    samples: int = 0
    """Samples of all pushes applied completely, which the schedule goes by."""
    train_samples: int = 0
    """Samples of a pass over the training data; 0: not known, or of no use."""
    live_replicas: int = 1
    steps: StepCounts = field(default_factory=lambda: StepCounts(Range(0, 0)))
    """Of a rule that counts them."""
    gathered: Gathered = field(default_factory=dict)
    """What was pushed and no merge holds yet; see `job.merged`."""
    clock: Callable[[], float] | None = None
    """Of what a shard does by itself. None: a record says when."""
    description: dict[str, str] = field(default_factory=dict)
    """What else a strategy wants to find again in a checkpoint."""
    cut: Cut | None = None
    """The checkpoint that is being written: it is told of what is about to change."""

    @property
    def version(self) -> Version:
        return Version(self.incarnation, self.count)

    def notes(self) -> Notes:
        """What its next incarnation has to find in its part of a checkpoint."""
        metadata = {
            **self.description,
            "samples": str(self.samples),
            "incarnation": str(self.incarnation),
        }
        tables = restoring.tables_of(self.deliveries.copy(), self.steps, self.gathered)
        return Notes(version=self.count, metadata=metadata, tables=tables)

    def answer(self, verb: Verb, request: Header) -> Header:
        return request._replace(
            verb=verb,
            role=Role.SHARD,
            sender=self.index,
            incarnation=self.incarnation,
            receiver_incarnation=request.incarnation,
            version_incarnation=self.incarnation,
            version=self.count,
            segment=0,
            segment_offset=0,
            payload_bytes=0,
        )

    def refuse(self, request: Header, refused: Refused) -> Answer:
        header = self.answer(Verb.REFUSED, request)._replace(reason=refused.reason)
        return Answer(header, str(refused).encode())


Answers: TypeAlias = Iterable[Answer]
Handler: TypeAlias = Callable[[Header, memoryview], Answers]
"""Raises Refused for what is not carried out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchFigures:
    """What a batch method has taken since the process started, for metrics."""

    staged_bytes: int = 0
    """Memory now of gradients that are not committed."""
    commands: int = 0
    """Carried out."""
    command_seconds: float = 0.0
    """Spent on them."""


class HolderSide(ABC):
    """A stage of the job on one shard; all of its stages have one state and the same records."""

    of: ClassVar[type[Any]]
    """The manifest's type for it."""

    keeps_updates: ClassVar[bool] = True
    """Whether what was applied since the last checkpoint is of use to this shard's next
    incarnation."""

    takes_model_from: ClassVar[frozenset[str]] = frozenset()
    """Names of update rules of whose checkpoints it takes the model's values, and no state."""

    fragments: int = 0
    """Of what is trained, that are pushed by themselves; 0: there are none."""

    values: Values
    """The shard's, from `begin` on."""

    def __init__(self, config: Any, state: ShardState, records: Records) -> None:
        """`config`: the update rule or method, as the manifest has it."""
        self.config = config
        self.kept: Any = config
        """What `room` is made by."""
        self.state = state
        self.records = records
        self.handlers: dict[int, Handler] = {}
        """Of its own verbs. They are asked once the initial values are complete."""

    @classmethod
    @abstractmethod
    def made(cls, stage: Spec, state: ShardState, records: Records) -> Self: ...

    @staticmethod
    def config_of(stage: Spec) -> Any:
        """The update rule or method of a stage that is its own."""
        strategy: Any = stage.strategy.rule
        return strategy.optimizer.rule

    @classmethod
    def kept_by(cls, stage: Spec) -> Any:
        """What a stage has a shard keep."""
        return cls.config_of(stage)

    @staticmethod
    @abstractmethod
    def room(kept: Any, share: Share, description: Mapping[str, str]) -> Values:
        """For the state that a checkpoint describes; {}: the values that it begins with.

        `kept`: as `kept_by` gives it.
        """

    def initialised(self) -> None:  # noqa: B027 - most keep nothing that goes by it.
        """The initial values have been uploaded."""

    def begin(
        self, values: Values, description: Mapping[str, str], returned_to: int | None
    ) -> None:
        """Begin with values that are new, or were read from a checkpoint with this description.

        `returned_to`: the number of the checkpoint to which a living shard went back.
        """
        del description, returned_to
        self.values = values

    @abstractmethod
    def drop(self, incarnation: SenderIncarnation) -> None:
        """Forget what is kept of this incarnation of a sender and of earlier ones."""

    def carry_out(self, command: commands.Command) -> commands.Result:
        """A command that is the strategy's own."""
        return commands.CommandFailed(message=f"a shard does not know {command.kind}")

    def advance(self) -> None:  # noqa: B027 - most do nothing but what they are asked for.
        """Do what is due by itself."""

    def finish(self, fragment: int | None = None) -> None:  # noqa: B027 - most have none.
        """Nothing more is pushed: put what waits for more into the values.

        `fragment`: of this one alone.
        """

    @property
    def due_at(self) -> float | None:
        """By the state's clock, when `advance` has something to do; None: that is not known."""
        return None

    def fragment(self, header: Header) -> Fragment:
        """What a PUSH or a FETCH is of. Raises Refused where there is no such fragment."""
        if header.fragment:
            raise Refused(Reason.MALFORMED, f"fragment {header.fragment}, and there are none here")
        return WHOLE

    def why_waits(self, header: Header) -> Refused | None:
        """Why the sender of a HELLO is to wait with what it sends next; None: it need not."""
        del header
        return None

    def unfetchable(self, header: Header) -> Refused | None:
        """Why something is not to be had now; None: it may be."""
        del header
        return None

    def fetched(self, header: Header) -> Vector | None:
        """The vector that a FETCH names; None: there is no such thing here."""
        return self.values.vector_of(header)

    def served(self, header: Header, part: Part, place: memoryview) -> memoryview:
        """What the sender of a FETCH gets for some elements of the vector that it names.

        `place`: what is computed may be written there at once, unless it is too small.
        """
        del header, place
        return self.values.bytes_of(part)

    def too_early(self, header: Header) -> Refused | None:
        """What to say to a request of this stage alone while an earlier one is at work."""
        del header
        return None

    @property
    def rate(self) -> float | None:
        """The learning rate of the next update; None: there is no such thing."""
        return None

    @property
    def prediction_errors(self) -> Mapping[int, float]:
        """By replica, of what was predicted for it."""
        return {}

    @property
    def waited_seconds(self) -> float:
        """What was pushed has waited for the pushes of others so long, in all."""
        return 0.0

    @property
    def figures(self) -> BatchFigures:
        return BatchFigures()
