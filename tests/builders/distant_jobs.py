"""A job whose processes are far from one another, each on a machine of `SlowLinks`."""

import json
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from builders.pod_processes import PodJob
from builders.slow_links import SlowLinks
from disttrain.job.pod_layout import Variable

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "language" / "language.py"
TEXT = EXAMPLE.parents[1] / "data" / "shakespeare-sample.txt"
MANIFEST = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: counting}
spec:
  task: {entrypoint: slow_language:SlowLanguage}
  evaluation: {everyEpochs: null, batchSize: 64}
  parameterServer: {threads: 1}
  replicas: {threads: 1, device: cpu}
"""
_CONTROL, _DATA, _METRICS = 7070, 7071, 9090
_READ = (
    *(sys.executable, "-c"),
    "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=10).read().decode())",
)
Steps = list[tuple[float, float]]
"""When each began and ended, by `time.monotonic`."""


class DistantJob(PodJob):
    """Replicas are on the first machines and shards on the last, the coordinator beside shard 0."""

    def __init__(
        self, folder: Path, links: SlowLinks, replicas: int, assignments: Mapping[str, Any]
    ) -> None:
        shards = len(links.names) - replicas
        counts = {"spec.replicas.count": replicas, "spec.parameterServer.shards": shards}
        super().__init__(folder, {**assignments, **counts}, manifest=MANIFEST)
        shutil.copy(EXAMPLE, folder)
        self.coordinator_address = f"tcp://{links.address(replicas)}:{_CONTROL}"
        self.shards = [f"shard-{index}" for index in range(shards)]
        self.replicas = [f"replica-{index}" for index in range(replicas)]
        for machine, name in enumerate((*self.replicas, *self.shards)):
            self.before[name] = links.on(machine)
            # Variables of the task, which is imported by replicas alone.
            self.changed[name] = {
                Variable.METRICS_ADDRESS: f"{links.address(machine)}:{_METRICS}",
                "STEPS_FILE": str(folder / f"{name}.steps"),
            }
        self.before["coordinator"] = self.before["shard-0"]
        for index, name in enumerate(self.shards):
            address = f"tcp://{links.address(replicas + index)}:{_DATA}"
            self.changed[name] = {**self.changed[name], Variable.LISTEN_ADDRESS: address}
        self._links = links

    def start_all(self) -> None:
        self.start("coordinator", *self.shards, *self.replicas)

    def lines(self) -> list[dict[str, Any]]:
        """Of metrics.jsonl, so far."""
        file = self.output / "metrics.jsonl"
        whole = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [json.loads(line) for line in whole if line.endswith("\n")]

    def steps(self, name: str) -> Steps:
        """Of a replica, over all its lives."""
        file = self.folder / f"{name}.steps"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(float(began), float(ended)) for began, ended in map(str.split, lines)]

    def payload(self) -> float:
        """Bytes that replicas have pushed and fetched since they last began, as they count them."""
        total = 0.0
        for machine, name in enumerate(self.replicas):
            if not self.is_running(name):
                continue
            page = self._links.call(
                machine, *_READ, f"http://{self._links.address(machine)}:{_METRICS}/metrics"
            )
            for line in page.splitlines():
                if line.startswith(("disttrain_push_bytes_total", "disttrain_fetch_bytes_total")):
                    total += float(line.split()[-1])
        return total

    def wait_trained(self) -> float:
        """Until anybody has; when that was, by `time.monotonic`."""
        self.wait_until(lambda status: status.get("samples", 0) > 0)
        return time.monotonic()

    def assert_goes_on(self) -> None:
        """Fail with what a process printed that has ended by itself."""
        for name, process in self.processes.items():
            ended = process.poll()
            assert ended in {None, 0}, f"{name} has ended with {ended}:\n{self.log(name)[-3000:]}"
