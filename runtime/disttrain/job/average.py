"""The exponential moving average of the parameters, as a manifest describes it."""

from typing import Final

from pydantic import Field

from disttrain.job.length import Extent, Length
from disttrain.job.section import Section

AVERAGE: Final = "average"
"""The name of the vector, in checkpoints too: it stays."""


class Average(Section):
    """Shards keep an exponential moving average of the parameters.

    It goes by the samples of the whole job, so that it means the same with any number of replicas
    and any batch size. Evaluations, the best model and exports are of it.
    """

    half_life: Length = Field(examples=[{"epochs": 0.5}])
    """After so much of the run what the parameters were counts half of what it did."""

    def problem_in(self, run: Extent) -> str | None:
        """As the strategy's, from its own name on."""
        if not self.half_life.is_of_the_run or run.has_end:
            return None
        return (
            f"halfLife goes by {self.half_life.words}, whose samples nothing limits; set "
            "spec.stop.epochs, samples or steps, or say the length in samples or epochs"
        )
