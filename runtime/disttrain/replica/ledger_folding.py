"""What becomes of a replica's older records with `audit: summary`. Pure.

Answers to consecutive pushes of one life of a shard become one record. Where the samples of a
lease lie is not kept. An answer with an older version than the one before stays, for the audit.
"""

import numpy as np

from disttrain.replica.ledger import Kind
from disttrain.telemetry import folding
from disttrain.telemetry.folding import Mask, Records, Shape

ANSWERS = Shape(
    one=Kind.ACKNOWLEDGED,
    folded=Kind.ANSWERS_FOLDED,
    number="number",
    owner="shard",
    life="shard_incarnation",
    began="lease",
)


def fold(records: Records) -> Records:
    """The log with every answer folded."""
    kept = records[records["kind"] != Kind.LEASE_BEGUN]
    return folding.fold(kept, ~_goes_back(kept), ANSWERS)


def _goes_back(records: Records) -> Mask:
    """Answers of an older life, or version, than the one of that shard before."""
    goes_back = np.zeros(len(records), np.bool_)
    answers = np.isin(records["kind"], [Kind.ACKNOWLEDGED, Kind.ANSWERS_FOLDED])
    for shard in np.unique(records["shard"][answers]):
        places = np.flatnonzero(answers & (records["shard"] == shard))
        lives, versions = (
            records[name][places].astype(np.int64) for name in ("shard_incarnation", "version")
        )
        older = (np.diff(lives) < 0) | ((np.diff(lives) == 0) & (np.diff(versions) < 0))
        goes_back[places[1:][older]] = True
    return goes_back
