"""Why nothing was simulated."""

from disttrain.errors import FinalError


class WrongMachines(FinalError):
    """A description of machines that cannot be understood."""


class NotSimulated(FinalError):
    """A job that a simulation does not know, or that it is to simulate twice."""
