"""What can go wrong in telemetry.

FinalError
  MetricsAddressError    metrics cannot be served where they should be
"""

from disttrain.errors import FinalError


class MetricsAddressError(FinalError):
    """The address for Prometheus is malformed or taken."""
