"""How long a part of a run is, in the one way in which manifests write it. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import Field

from disttrain.job.section import Count, Part, Positive, Section
from disttrain.job.stop import Stop


class Extent(NamedTuple):
    """How long a run is, as far as that is known."""

    samples: int | None = None
    """When it ends; None: nobody knows."""
    epoch: int | None = None
    """Samples of a pass over the training data; None: not known yet."""
    has_end: bool = True
    """Whether something but time or a measure ends it."""
    counts_epochs: bool = False
    """Its numbers are not of samples but of epochs: what is known of a manifest alone. What is
    given in samples is then not known."""


UNKNOWN = Extent()


def extent(stop: Stop, batch_size: int, train_samples: int | None) -> Extent:
    """Return how long a run is that ends by `stop`; steps count as whole batches."""
    epochs = None
    if stop.epochs is not None and train_samples is not None:
        epochs = stop.epochs * train_samples
    steps = None if stop.steps is None else stop.steps * batch_size
    ends = [end for end in (epochs, steps, stop.samples) if end is not None]
    is_known = stop.epochs is None or epochs is not None
    return Extent(
        samples=min(ends) if ends and is_known else None,
        epoch=train_samples,
        has_end=bool(stop.epochs or stop.steps or stop.samples),
    )


def without_data(stop: Stop, batch_size: int) -> Iterator[Extent]:
    """What is known before the size of the data is: in samples, and perhaps in epochs."""
    yield extent(stop, batch_size, None)
    if stop.epochs is not None and stop.steps is None and stop.samples is None:
        yield Extent(samples=stop.epochs, epoch=1, counts_epochs=True)


class Measured(Section):
    """Says how far something goes; by none of its fields: as far as the run."""

    samples: Count | None = Field(default=None, examples=[5000])
    """How many samples of the whole job it lasts."""

    epochs: Positive | None = Field(default=None, examples=[2])
    """The same in passes over the training data; 0.5 is half of one."""

    fraction: Part | None = Field(default=None, examples=[0.1])
    """The same as a fraction of the run: of its samples by `spec.stop`."""

    @property
    def is_of_the_run(self) -> bool:
        """Whether it can only be told from where the run ends."""
        return self.samples is None and self.epochs is None

    def known_in(self, run: Extent) -> float | None:
        """In what the run is counted in; None: nobody can know yet."""
        if self.samples is not None:
            return None if run.counts_epochs else float(self.samples)
        unit, factor = (run.epoch, self.epochs) if self.epochs else (run.samples, self.fraction)
        return None if unit is None else unit * (1.0 if factor is None else factor)

    def length_in(self, run: Extent) -> float:
        """The same. Raises ValueError as long as nobody can know."""
        known = self.known_in(run)
        if known is None:
            message = f"{self.words} is asked for before the size of the data is known"
            raise ValueError(message)
        return known

    @property
    def words(self) -> str:
        if self.samples is not None:
            return f"{self.samples} samples"
        if self.epochs is not None:
            return f"{self.epochs:g} epochs"
        return "the run" if self.fraction is None else f"{self.fraction:g} of the run"


THE_RUN = Measured()


class Length(Measured):
    """A part of the run: exactly one of samples, epochs and fraction is given."""

    alternatives = ("samples", "epochs", "fraction")
