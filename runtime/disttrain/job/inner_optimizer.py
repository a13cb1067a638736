"""The optimizer of a replica's own steps, as a manifest names it."""

from typing import Annotated

from pydantic import BeforeValidator, Field, JsonValue

from disttrain.job import nearest, torch_optimizers
from disttrain.job.length import Extent
from disttrain.job.schedule import Schedule
from disttrain.job.schedule_kinds import Constant
from disttrain.job.section import Positive, Section, refused
from disttrain.job.torch_optimizers import ARGUMENTS, OptimizerName


def _known(name: object) -> object:
    if not isinstance(name, str) or name in list(OptimizerName):
        return name
    near = nearest.of(name, OptimizerName)
    remedy = "" if near is None else f"; did you mean '{near}'?"
    raise refused(f"must be one of {', '.join(OptimizerName)}, got '{name:.60}'{remedy}")


_Name = Annotated[OptimizerName, Field(strict=False), BeforeValidator(_known)]


class InnerOptimizer(Section):
    """An optimizer of torch.optim, which each replica has for itself."""

    name: _Name = OptimizerName.ADAM_W
    """Its class in torch.optim."""

    arguments: dict[str, JsonValue] = Field(
        default_factory=dict, max_length=20, examples=[{"lr": 0.001}]
    )
    """Its arguments, by torch's names. What is left out is torch's default."""

    clip_norm: Positive | None = None
    """Largest L2 norm of one step's gradient; a longer one is scaled down to it. null: no limit."""

    schedule: Schedule = Schedule(constant=Constant())
    """How `lr` changes with the samples that all replicas have processed. Rprop takes none: it
    changes the sizes of its steps by itself."""

    def problem(self) -> str | None:
        """Whether torch takes the rest, replicas find out before they join."""
        known = ARGUMENTS[self.name]
        for name in self.arguments:
            if name not in known:
                return f"arguments.{name}: {nearest.unknown(name, known, 'argument')}"
        if problem := torch_optimizers.problem(self.name, self.arguments):
            return f"arguments.{problem}"
        if self.name is OptimizerName.RPROP and not self.schedule.is_constant:
            return (
                "schedule: must be constant without a warmup with Rprop, which takes lr for its "
                "first step alone and changes the sizes of steps by itself; leave it out"
            )
        return None

    def problem_in(self, run: Extent) -> str | None:
        """What does not fit into a run, with its place below the section; None: nothing."""
        problem = self.schedule.problem_in(run)
        return problem and f"schedule.{problem}"
