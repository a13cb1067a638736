"""What can go wrong with sharded vectors.

DistTrainError
└── FinalError
    ├── UnknownVector       an operation reads a vector that was never made
    └── OrderRefused        an order of an old coordinator, or one that was overtaken
"""

from disttrain.errors import FinalError


class UnknownVector(FinalError):
    """An operation reads a vector that is not there."""


class OrderRefused(FinalError):
    """An order that must not be carried out."""
