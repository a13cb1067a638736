"""One simulated run of a batch method: how long its course takes so many replicas.

The method's driver and the giving out of groups with its copies are production's.
"""

from disttrain.coordinator.decisions import stop_rules
from disttrain.sandblaster.batch.driver import Stage
from disttrain.sandblaster.batch.groups import Attempt, Worker
from disttrain.simulation.batch_replicas import BatchReplicas, ReplicaMachine, ShardMachine
from disttrain.simulation.course import INCARNATION, Course
from disttrain.simulation.evaluations import Evaluations, Result
from disttrain.simulation.machines import Machines, StepTimes
from disttrain.simulation.setting import Setting
from disttrain.transport.in_memory import Link

_TOLD_AT_ONCE = 16
"""Results of which shards hear together, so that they hold few gradients."""


class SimulatedBatchRun:
    """Until the method or a condition of the manifest ends it. Belongs to one thread."""

    def __init__(
        self,
        setting: Setting,
        machines: Machines,
        replicas: int,
        evaluate_every: int,
        course: Course,
    ) -> None:
        """`evaluate_every`: samples between two evaluations, the same in all runs of a course."""
        self.setting = setting
        self.replicas = replicas
        self.now = 0.0
        self.course = course
        self.evaluations = Evaluations(setting, evaluate_every)
        self._driver = course.driver
        self._state = self._driver.begin(INCARNATION, (INCARNATION,) * len(course.shards))
        self._told = 0
        """Groups of this evaluation whose winners shards know."""
        self._latency = machines.latency_seconds
        self._shards = [ShardMachine(nbytes, _link(machines)) for nbytes in course.bytes_of_shards]
        size, seed = course.portion_samples, setting.seed
        members = [
            ReplicaMachine(
                Worker(index, INCARNATION),
                StepTimes(machines, index, size, seed, replicas),
                _link(machines),
            )
            for index in range(replicas)
        ]
        self._members = members
        self._replicas = BatchReplicas(
            machines, self._shards, members, course.gradients.samples, course.copies_from
        )

    def run(self) -> Result:
        """Until a condition of `spec.stop` is met, or the method has converged."""
        state, evaluated, is_over = self._state, -1, False
        while state.stage is not Stage.DONE and not is_over:
            iteration = state.method.progress.iteration
            is_due = state.samples >= self.evaluations.next_samples and iteration != evaluated
            ends = self._meets_a_limit()
            if state.stage is Stage.PREPARING and (is_due or ends):
                if not state.request.settles:
                    evaluated = iteration
                    is_over = self._evaluate() or ends
                    continue
                # Whoever reads the parameters reads the point accepted last.
                self._driver.accept_first(state)
            self._carry_out()
            if state.stage is Stage.COMPUTING:
                self._compute()
        if not is_over:
            self._evaluate()
        return self.evaluations.result(
            replicas=self.replicas,
            nbytes=sum(member.nbytes for member in self._members),
            computing_seconds=sum(member.computing_seconds for member in self._members),
            groups=state.evaluation.groups,
        )

    def _evaluate(self) -> bool:
        samples = self._state.samples
        measured = self.course.measured(samples, self.evaluations)
        return self.evaluations.take(self.now, samples, measured)

    def _meets_a_limit(self) -> bool:
        """Of those that no evaluation is needed for."""
        state = self._state
        reached = stop_rules.Reached(
            epochs=state.samples // self.setting.train_samples,
            steps=0,
            samples=state.samples,
            seconds=self.now,
            iterations=state.method.progress.iteration,
            measures={},
        )
        return stop_rules.met(self.setting.spec.stop, reached) is not None

    def _carry_out(self) -> None:
        """The latest command, on every shard at once."""
        command, ends = self._state.order, list[float]()
        for shard in self._shards:
            touched = shard.nbytes * (len(command.operations) + len(command.sums))
            ends.append(shard.works(self.now + self._latency, touched))
        for index, performed in enumerate(self.course.carry_out(command)):
            self._driver.answered(self._state, index, performed)
        self.now = max(ends) + self._latency

    def _compute(self) -> None:
        self._told = 0
        self.now = self._replicas.evaluate(self._driver, self._state, self.now, self._take)

    def _take(self, attempt: Attempt) -> None:
        """A result, of which the first one of a group counts."""
        state, evaluation = self._state, self._state.evaluation
        if attempt.group in evaluation.winners:
            return
        result = self.course.result(attempt, evaluation)
        self._driver.staged(state, attempt.worker, result)
        won = len(evaluation.winners)
        if state.stage is Stage.COMPUTING and won >= self._told + _TOLD_AT_ONCE:
            self.course.decide(self._driver.decided(state, self._told))
            self._told = won


def _link(machines: Machines) -> Link | None:
    speed = machines.bytes_per_second
    return None if speed is None else Link(speed)
