"""What a coordinator orders a shard to do, in which order, and how often: each order once."""

from collections.abc import Callable
from dataclasses import dataclass, field

from disttrain.sandblaster.batch.runs import Run
from disttrain.sandblaster.errors import OrderRefused
from disttrain.sandblaster.operations import ARRIVED, Operation


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """One order to every shard."""

    coordinator: int
    """Incarnation of the coordinator that gives it."""
    number: int
    """From 1, without gaps, the same for all shards; journaled before it is sent."""
    iteration: int
    evaluation: int
    """The evaluation that is under way once the order is carried out; 0: none, and gradients that
    come too late are refused."""
    groups: int = 0
    """Of that evaluation."""
    runs: tuple[Run, ...] = ()
    """Those groups, if they are not all from 0 on, or are not all in one sum; in an order that
    commits them, with their samples."""
    commits: tuple[int, ...] = ()
    """Attempts whose sums become gradients, by their groups' places; empty: nothing is committed.
    Without runs it is one sum, and becomes the gradient that arrived."""
    samples: int = 0
    """Of all these groups together."""
    divisor: float | None = None
    """What makes a mean of their sum, if not the samples."""
    operations: tuple[Operation, ...] = ()

    @property
    def sums(self) -> tuple[Run, ...]:
        if not self.commits:
            return ()
        return self.runs or (self._one_run,)

    @property
    def _one_run(self) -> Run:
        return Run(vector=ARRIVED, groups=(), samples=self.samples, divisor=self.divisor)

    @property
    def committed(self) -> tuple[str, ...]:
        return tuple(run.vector for run in self.sums)


@dataclass(frozen=True, kw_only=True, slots=True)
class Performed:
    """A shard's answer."""

    number: int
    scalars: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """News between two orders, so that shards need not keep everything: it may be lost."""

    coordinator: int
    evaluation: int
    winners: dict[int, int]
    """Attempts that count, by group."""


@dataclass(slots=True)
class OrderLog:
    """Which orders a shard has carried out. Belongs to one thread."""

    coordinator: int = 0
    """The newest incarnation that was heard."""
    last: int = 0
    """Number of the order carried out last."""
    _answer: Performed = field(default_factory=lambda: Performed(number=0, scalars=()))

    def carry_out(self, order: Order, perform: Callable[[Order], tuple[float, ...]]) -> Performed:
        """The answer to an order: one that is said again is not done again.

        Raises OrderRefused for an order of an old coordinator, one that was overtaken, one that
        comes after another which never arrived, and one whose answer an earlier life of the shard
        has given. What `perform` raises leaves all as it was.
        """
        self.check(order.coordinator)
        if order.number == self.last == self._answer.number:
            return self._answer
        if order.number != self.last + 1:
            message = f"order {order.number} does not follow on {self.last}"
            raise OrderRefused(message)
        self._answer = Performed(number=order.number, scalars=perform(order))
        self.last = order.number
        return self._answer

    def check(self, coordinator: int) -> None:
        """Remember the newest life of the coordinator. Raises OrderRefused for an earlier one."""
        if coordinator < self.coordinator:
            message = f"of coordinator {coordinator}; {self.coordinator} was heard already"
            raise OrderRefused(message)
        self.coordinator = coordinator
