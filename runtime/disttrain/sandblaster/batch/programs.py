"""Vector programs: what a coordinator tells every shard to do, one after another, each once."""

from collections.abc import Callable
from dataclasses import dataclass, field

from disttrain.sandblaster.batch.batches import Run
from disttrain.sandblaster.errors import ProgramRefused
from disttrain.sandblaster.operations import ARRIVED, Operation


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """One program for every shard; a command carries it."""

    coordinator: int
    """Incarnation of the coordinator that gives it."""
    number: int
    """From 1, without gaps, the same for all shards; journaled before it is sent."""
    iteration: int
    evaluation: int
    """The evaluation that is under way once the program is carried out; 0: none, and gradients that
    come too late are refused."""
    groups: int = 0
    """Of that evaluation."""
    runs: tuple[Run, ...] = ()
    """Those groups, if they are not all from 0 on, or are not all in one sum; in a program that
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
    """News between two programs, so that shards need not keep everything: it may be lost."""

    coordinator: int
    evaluation: int
    winners: dict[int, int]
    """Attempts that count, by group."""


@dataclass(slots=True)
class ProgramLog:
    """Which programs a shard has carried out. Belongs to one thread."""

    coordinator: int = 0
    """The newest incarnation that was heard."""
    last: int = 0
    """Number of the program carried out last."""
    _answer: Performed = field(default_factory=lambda: Performed(number=0, scalars=()))

    def carry_out(
        self, program: Program, perform: Callable[[Program], tuple[float, ...]]
    ) -> Performed:
        """The answer to a program: one that is said again is not done again.

        Raises ProgramRefused for a program of an old coordinator, one that was overtaken, one that
        comes after another which never arrived, and one whose answer an earlier incarnation of the
        shard has given. What `perform` raises leaves all as it was.
        """
        self.check(program.coordinator)
        if program.number == self.last == self._answer.number:
            return self._answer
        if program.number != self.last + 1:
            message = f"program {program.number} does not follow on {self.last}"
            raise ProgramRefused(message)
        self._answer = Performed(number=program.number, scalars=perform(program))
        self.last = program.number
        return self._answer

    def check(self, coordinator: int) -> None:
        """Remember the newest coordinator's incarnation. Raises ProgramRefused for an older one."""
        if coordinator < self.coordinator:
            message = f"of coordinator {coordinator}; {self.coordinator} was heard already"
            raise ProgramRefused(message)
        self.coordinator = coordinator
