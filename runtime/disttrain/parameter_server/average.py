"""The moving average that a shard keeps beside its parameters, whatever their update rule."""

from disttrain.holder.values import Values
from disttrain.job.average import AVERAGE
from disttrain.job.length import Extent, Length
from disttrain.state.share import Part


class MovingAverage:
    """Of the values of one shard, from `begin` on. Belongs to the shard's thread.

    It is an element's own affair: however vectors are cut, and wherever chunks of several pushes
    come between one another, each element moves once for each update that it has had.
    """

    def __init__(self, half_life: Length) -> None:
        self._half_life = half_life
        self._samples = 1.0
        """What the half-life is, once the run is known."""

    def begin(self, values: Values, run: Extent) -> None:
        """Begin with values that may have been saved before there was an average."""
        self._samples = self._half_life.length_in(run)
        if values.trained.beside(AVERAGE) in values.lacking:
            self.restart(values)

    @staticmethod
    def restart(values: Values) -> None:
        """The parameters are the first ones, and so their average."""
        values.tensor(values.trained.beside(AVERAGE)).copy_(values.tensor(values.trained))

    def follow(self, values: Values, part: Part, samples: int) -> None:
        """Some elements after an update of so many samples, those without a gradient included."""
        average = values.beside(part)[AVERAGE]
        average.lerp_(values.part(part), 1.0 - 0.5 ** (samples / self._samples))
