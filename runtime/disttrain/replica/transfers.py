"""How long pushes or fetches took and how much they carried."""

from disttrain.telemetry.metrics import Histogram


class Transfers:
    """Filled by one thread, read by others."""

    def __init__(self) -> None:
        self.seconds = Histogram()
        self.nbytes = 0
        """Payload, without headers."""

    def add(self, seconds: float, nbytes: int) -> None:
        """Count a push to all shards, or a fetch from all of them, that has ended."""
        self.seconds.observe(seconds)
        self.nbytes += nbytes
