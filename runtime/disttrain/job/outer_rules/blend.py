"""The outer rule for parameters in place of differences in a manifest."""

from disttrain.job.outer_rule import OuterRule
from disttrain.job.section import Part


class Blend(OuterRule):
    """Moves the parameters towards those of each replica, which pushes them as they are.

    With one replica it copies them, bit for bit. With several it takes back a part of what others
    did since the fetch, where `average` keeps it.
    """

    name = "blend"
    sends_parameters = True
    merges = False

    learning_rate: Part = 1.0
    """The part of the way, before it is divided by the number of live replicas."""
