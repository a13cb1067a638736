"""How much a run writes down for `disttrain audit`."""

from enum import StrEnum


class Audit(StrEnum):
    """What is kept of the ledgers, in which each process writes down its own updates."""

    FULL = "full"
    """Every record, to the end: the disk use grows with the run."""
    SUMMARY = "summary"
    """Records of the checkpoints that are kept; older ones become sums, at each checkpoint."""
    OFF = "off"
    """Nothing, so that there is no audit. kubectl takes it for false without quotes."""
