"""What can go wrong between a replica and the shards, and inside a shard.

DistTrainError
├── RetryableError
│   ├── NoRoomForCounts     a full disk: what the shard acknowledges cannot be counted
│   └── ShardsAway          no answer from a shard in time; its restart may be under way
└── FinalError
    ├── Fenced              a newer incarnation of this replica exists, or it was declared dead
    ├── PushRefused         a shard refused an update; the next one may be fine
    ├── EvaluationOver      Sandblaster: what was asked for belongs to no evaluation under way
    └── RequestRefused      a shard refused a request for good: another layout, a verb not allowed
"""

from disttrain.errors import FinalError, RetryableError
from disttrain.transport.header import Reason


class NoRoomForCounts(RetryableError):
    """The disk has no room for the file of acknowledged counts."""


class ShardsAway(RetryableError):
    """A shard did not answer within the time allowed."""


class Fenced(FinalError):
    """The shards refuse this incarnation of the sender."""


class PushRefused(FinalError):
    """An update was refused: it holds values that are not finite, or is too old."""

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason


class EvaluationOver(FinalError):
    """The evaluation is over, or a shard's new incarnation does not know it: drop its groups."""


class RequestRefused(FinalError):
    """A request that no repetition can make right."""
