"""Downpour SGD in a replica."""

from disttrain.job.length import Extent
from disttrain.job.spec import Spec
from disttrain.job.strategies import downpour as manifests
from disttrain.replica import accrual
from disttrain.replica.connection import Connection
from disttrain.replica.downpour import Downpour
from disttrain.replica.pace import MeasuredPace
from disttrain.replica.stepped_training import MakePace, SteppedTraining


class DownpourTraining(SteppedTraining):
    """See `training.Training`."""

    of = manifests.Downpour

    @staticmethod
    def outgoing_buffers(spec: Spec) -> int:
        return accrual.gradient_buffers(spec.strategy.only_downpour)

    @staticmethod
    def stepper(
        connection: Connection, spec: Spec, run: Extent, pace: MakePace = MeasuredPace
    ) -> Downpour:
        manifest, replicas = spec.strategy.only_downpour, spec.replicas.count
        return Downpour(connection, manifest, pace=pace(replicas, manifest.fetch_every), run=run)
