"""What shards do with a push, as a manifest describes it: the vectors that it needs, its rate."""

import inspect
from typing import ClassVar, Self

from disttrain.job.length import Extent
from disttrain.job.schedule_kinds import Factor, full_rate
from disttrain.job.section import Positive, Section


class ShardRule(Section):
    """What all rules for pushes have. Their arithmetic is in `parameter_server`."""

    name: ClassVar[str]
    # In checkpoints, and in manifests in camelCase: it stays, whatever the class is called. As long
    # as 32 small letters and underscores.

    kept: ClassVar[tuple[str, ...]] = ()
    # What a holder always keeps beside the parameters, as long as they are: the vectors' names.
    # They are in checkpoints and can be fetched.

    kept_of_sender: ClassVar[tuple[str, ...]] = ()
    # The same for each incarnation of a replica, filled with 0 before its first push or fetch. They
    # are in no checkpoint: after a shard's restart they are new, and the staleness of pushes that
    # were computed on what was served before is unknown.

    serves: ClassVar[str | None] = None
    # The name of what replicas compute with, where that is not the parameters: a vector that nobody
    # keeps, as long as they are, which the rule makes whenever it is fetched.

    pushed: ClassVar[tuple[str, ...]] = ()
    # Vectors that replicas push beside the gradient, as long as it is; see `staleness`.

    zero_is_a_step: ClassVar[bool] = False
    # Whether a gradient of 0 changes a parameter or what is kept beside it. Parameters that have no
    # gradient at all are then left out of a push, as torch.optim leaves them alone.

    counts_steps: ClassVar[bool] = False
    # Whether its arithmetic goes by how many updates an element has had.

    uses_factors: ClassVar[bool] = True
    # Whether it goes by the factors of a task's parameter groups.

    learning_rate: Positive
    """What a push is multiplied by."""

    @classmethod
    def option(cls) -> tuple[str, type[Self], str]:
        """What `section.one_of` wants of it; the first paragraph of its docstring describes it."""
        return cls.name, cls, (inspect.getdoc(cls) or "").partition("\n\n")[0]

    @property
    def initial_state(self) -> dict[str, float]:
        """By name the vectors that are kept, and what each is filled with at first."""
        return dict.fromkeys(self.kept, 0.0)

    def rates(self, run: Extent) -> Factor:
        """What the rate is multiplied by, by the samples in the parameters.

        Raises ValueError before `run` is known enough.
        """
        del run
        return full_rate
