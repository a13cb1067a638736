"""What a replica does in local steps: as in Downpour, and each push is of one fragment."""

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import Progress
from disttrain.parameter_server.client import Push
from disttrain.replica.fragment_schedule import FragmentSchedule
from disttrain.state.fragments import Fragment
from simulation.sim_work import DownpourWork, Place
from simulation.world import Difference, PushName, Range


class LocalStepsWork(DownpourWork):
    """Each difference is ones, however many steps it is of."""

    def __init__(self, place: Place, joined: messages.Joined) -> None:
        super().__init__(place, joined)
        rule = self.world.job.spec.strategy.only_local_steps
        self._schedule = FragmentSchedule(rule.fragments)
        self._steps: dict[int, list[Range]] = {each.number: [] for each in self._schedule.fragments}
        """By fragment, those that no push has yet."""

    def _computed(self, samples: int) -> None:
        self._schedule.step(samples, self._reached)
        for steps in self._steps.values():
            steps.append(self._accrued[-1])

    def _push_in_turn(self) -> None:
        self._push_one(self._schedule.next)

    def _push(self) -> None:
        for fragment in self._schedule.unfinished:
            self._push_one(fragment)

    def _push_one(self, fragment: Fragment) -> None:
        turn = self._schedule.push(fragment)
        self._sequence += 1
        name = PushName(self.member.index, self.member.incarnation, self._sequence)
        self.world.pushed[name] = self._taken(turn.counted)
        difference = Difference(fragment.number, tuple(self._steps[fragment.number]))
        self.world.differences[name], self._steps[fragment.number] = difference, []
        assert (len(difference.ranges), difference.samples) == (turn.steps, turn.samples)
        vector = self.world.vector
        self.pushes.push(
            Push(
                sequence=self._sequence,
                gradient=self._gradient,
                fragment=fragment,
                fragment_bytes=fragment.nbytes(vector, self.world.parameters),
                versions=self._versions,
                samples=turn.counted,
                local_steps=turn.steps,
                local_samples=turn.samples,
                lease=turn.position.lease,
                lease_offset=turn.position.offset,
            )
        )
        counted = self._counted.samples + turn.counted
        self._counted = Progress(position=turn.position, samples=counted)

    def _taken(self, samples: int) -> tuple[Range, ...]:
        """What a push counts of what was computed: whole steps, the oldest ones."""
        found = []
        while samples > 0:
            lease, first, end = self._accrued.pop(0)
            found.append((lease, first, end))
            samples -= end - first
        assert samples == 0
        return tuple(found)
