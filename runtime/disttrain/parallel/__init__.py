"""Models divided among processes: arrays of which each process has a window, and layers over them.

Nothing here knows of jobs, coordinators or shards, and nothing but torch is imported.
"""

from disttrain.parallel.array import DistributedArray
from disttrain.parallel.communicator import Alone, Communicator, Traffic
from disttrain.parallel.layers.contrast import LocalContrastNorm2d
from disttrain.parallel.layers.dropout import HashDropout
from disttrain.parallel.layers.local import LocallyConnected2d
from disttrain.parallel.layers.pooling import L2Pool2d
from disttrain.parallel.layers.unit_filters import ReconstructionTarget, UnitFilters2d
from disttrain.parallel.losses import cross_entropy, divided, one_vs_all
from disttrain.parallel.partitioned import CannotPartition, Partitioned
from disttrain.parallel.partitioning import partition
from disttrain.parallel.reconstruction import reconstruction_losses
from disttrain.parallel.windows import Box, Grid, Span

__all__ = [
    "Alone",
    "Box",
    "CannotPartition",
    "Communicator",
    "DistributedArray",
    "Grid",
    "HashDropout",
    "L2Pool2d",
    "LocalContrastNorm2d",
    "LocallyConnected2d",
    "Partitioned",
    "ReconstructionTarget",
    "Span",
    "Traffic",
    "UnitFilters2d",
    "cross_entropy",
    "divided",
    "one_vs_all",
    "partition",
    "reconstruction_losses",
]
