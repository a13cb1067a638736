"""The parts of an operator that decide, put together as its process does, on a world in memory."""

from collections.abc import Callable, Iterator
from typing import Any

from builders import operator_jobs
from builders.fake_cluster import FakeClient, World, watched_events
from disttrain.job import cluster_labels
from disttrain.job.credentials import Trust
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.observed.inventory import Inventory
from disttrain_operator.observed.watched import KINDS, Observation, Observer
from disttrain_operator.reconcile import report
from disttrain_operator.reconcile.reconciler import Reconciler
from disttrain_operator.reconcile.relist import Relister

WatchEvent = tuple[Kind, str, dict[str, Any]]


class OperatorInMemory:
    """One incarnation of an operator; it has seen nothing yet, and hears of what happens now."""

    def __init__(
        self,
        world: World,
        client: FakeClient | None = None,
        config: ManifestConfig | None = None,
        trust: Callable[[str], Trust] = operator_jobs.trust,
    ) -> None:
        self.world = world
        self.client = client or FakeClient(world)
        self.inventory = Inventory()
        self.observer = Observer(self.inventory, report.FIELDS)
        # Whoever drives it looks at its jobs anyway.
        self.relister = Relister(self.client, self.inventory, self.observer, (), lambda _: None)
        self.reconciler = Reconciler(
            self.client,
            self.inventory,
            config or ManifestConfig(),
            trust,
            self.relister.job,
            lambda: world.now,
        )
        self._heard = len(world.events)

    def news(self) -> list[WatchEvent]:
        """What happened since it was asked last."""
        told = watched_events(self.world, self._heard)
        self._heard = len(self.world.events)
        return told

    def take(self, event: WatchEvent) -> Observation:
        kind, how, body = event
        return (self.observer.gone if how == "DELETED" else self.observer.seen)(kind, body)

    def hear(self) -> list[tuple[Kind, Observation]]:
        """Take in all that happened."""
        return [(event[0], self.take(event)) for event in self.news()]

    def see_everything(self) -> None:
        """Take in all that is there, as a first list brings it."""
        for kind, body in everything(self.world):
            self.observer.seen(kind, body)


def everything(world: World) -> Iterator[tuple[Kind, dict[str, Any]]]:
    """All objects that an operator watches: jobs, and what has the operator's label."""
    for (kind, *_), body in world.objects.items():
        labels = body["metadata"].get("labels", {})
        own = cluster_labels.managed().items() <= labels.items()
        if kind in KINDS and (own or kind is Kind.DistTrainJob):
            yield kind, body
