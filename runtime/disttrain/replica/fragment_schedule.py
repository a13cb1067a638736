"""Which fragment a replica pushes next, and what each push accounts for. Pure."""

from typing import NamedTuple

from disttrain.coordinator.protocol.fields import START, Position
from disttrain.state.fragments import Fragment


class _Mark(NamedTuple):
    """How far a replica was; later ones are larger."""

    steps: int = 0
    samples: int = 0
    position: Position = START


class Turn(NamedTuple):
    """One push."""

    fragment: Fragment
    steps: int
    """That its difference is of."""
    samples: int
    """Of these."""
    counted: int
    """Samples that with this push all fragments hold, and did not before."""
    position: Position
    """After them."""


class FragmentSchedule:
    """The fragment that was pushed longest ago is the next one.

    A sample counts when the last of the fragments is pushed that its step has changed. Until then
    its lease is open.
    """

    def __init__(self, fragments: int) -> None:
        self.fragments = tuple(Fragment(number, fragments) for number in range(fragments))
        self._now = _Mark()
        self._pushed = [_Mark() for _ in self.fragments]

    def step(self, samples: int, position: Position) -> None:
        """The parameters hold another step."""
        steps, before, _ = self._now
        self._now = _Mark(steps + 1, before + samples, position)

    def passed(self, position: Position) -> None:
        """A step's gradient was refused."""
        self._now = self._now._replace(position=position)

    @property
    def uncounted_steps(self) -> int:
        return self._now.steps - min(self._pushed).steps

    @property
    def uncounted_samples(self) -> int:
        return self._now.samples - min(self._pushed).samples

    @property
    def next(self) -> Fragment:
        return min(self.fragments, key=lambda each: self._pushed[each.number])

    @property
    def unfinished(self) -> list[Fragment]:
        """Those that have steps which no push has, in their turn."""
        found = [each for each in self.fragments if self.has_new_steps(each)]
        return sorted(found, key=lambda each: self._pushed[each.number])

    def has_new_steps(self, fragment: Fragment) -> bool:
        return self._now.steps > self._pushed[fragment.number].steps

    def push(self, fragment: Fragment) -> Turn:
        """It is being pushed as it is now."""
        now, before, counted = self._now, self._pushed[fragment.number], min(self._pushed)
        self._pushed[fragment.number] = now
        self._pushed = [now if one.steps == now.steps else one for one in self._pushed]
        after = min(self._pushed)
        return Turn(
            fragment,
            steps=now.steps - before.steps,
            samples=now.samples - before.samples,
            counted=after.samples - counted.samples,
            position=after.position,
        )

    def forget(self) -> None:
        """None of the steps so far is to be pushed any more."""
        self._pushed = [self._now for _ in self.fragments]
