"""The port at which pods ask for certificates, in a thread, on a cluster in memory."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from builders import many_jobs
from builders.fake_cluster import FakeClient, World
from builders.operator_in_memory import OperatorInMemory
from disttrain.job import cluster_names
from disttrain.job.credentials import Trust
from disttrain.launch.pod_credentials import Applicant
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.records import JobKey
from disttrain_operator.signing import endpoint
from disttrain_operator.signing.authorities import Authorities
from disttrain_operator.signing.endpoint import Endpoint

KEY = JobKey(many_jobs.SPACE, "counting")
HOST = "127.0.0.1"
Object = dict[str, Any]


class SigningPort:
    """A job of two shards and two replicas whose pods run, and an operator that has seen them."""

    def __init__(self, lifetime: timedelta = timedelta(hours=24), partitions: int = 1) -> None:
        self.world = World()
        body = many_jobs.job(KEY.name)
        replicas = {"count": 2, "partitions": partitions}
        spec = {**body["spec"], "parameterServer": {"shards": 2}, "replicas": replicas}
        self.job = self.world.create(Kind.DistTrainJob, {**body, "spec": spec})
        self.client = FakeClient(self.world)
        self.operator = OperatorInMemory(self.world, self.client)
        for _ in range(4):
            self.operator.hear()
            self.operator.see_everything()
            asyncio.run(self.operator.reconciler.look(KEY, 0))
            self.world.run_controllers()
        self.operator.hear()
        self.authorities = Authorities(bytes(32), lifetime)
        self.endpoint = Endpoint(self.client, self.operator.inventory, self.authorities)
        self.port = 0
        """As it was bound first; an operator that comes back has the same."""

    @property
    def uid(self) -> str:
        return str(self.job["metadata"]["uid"])

    @property
    def trust(self) -> Trust:
        """What the job's pods are told."""
        return self.authorities.trust(self.uid, f"{HOST}:{self.port}")

    def pods(self, role: str) -> list[Object]:
        """The pods of a role."""
        found = [body for (kind, *_), body in self.world.objects.items() if kind is Kind.Pod]
        component = "app.kubernetes.io/component"
        return [each for each in found if each["metadata"]["labels"][component] == role]

    def applicant(self, pod: Object, folder: Path, instance: str = "") -> Applicant:
        """A process in a pod."""
        metadata = pod["metadata"]
        token = folder / f"token-{metadata['name']}"
        token.write_text(f"{metadata['namespace']}/{metadata['name']}/{metadata['uid']}\n")
        return Applicant(
            trust=self.trust,
            job=KEY.name,
            instance=instance or f"{metadata['uid']}.1",
            token=token,
            secret=cluster_names.launch_secret(KEY.name, self.uid),
        )

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Answer at the port, as long as the context lasts."""
        started, loop = threading.Event(), asyncio.new_event_loop()
        stop = asyncio.Event()

        async def serve() -> None:
            listener = endpoint.bound(self.port)
            self.port = listener.getsockname()[1]
            shown = self.authorities.of_endpoint(HOST)
            async with endpoint.serving(self.endpoint, listener, shown):
                started.set()
                await stop.wait()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
        thread.start()
        assert started.wait(20)
        try:
            yield
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(20)
            loop.close()
