"""A real job on the test cluster: it counts what was trained, while a test breaks its parts."""

import json
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import yaml
from safetensors.torch import load
from torch import Tensor

from builders import commands, helm, product_images, volume_reader
from builders.job_view import LIMIT, JobView, Status
from builders.runs import COUNTING, TASKS
from builders.volume_reader import VolumeReader
from cluster import Kubectl
from cluster.errors import NotInTime
from cluster.hooks import Hooks

NAME: Final = "counting"
JOB: Final = f"disttrainjob/{NAME}"
DIGITS: Final = product_images.REPOSITORY / "examples" / "digits" / "digits.py"
COUNTING_TASK: Final = "counting:Counting"
CODE: Final = "task-code"
CONTAINER: Final = "disttrain"
SAMPLES: Final = 1024
EPOCHS: Final = 2
STEP_SECONDS: Final = 1.5
"""256 steps of 8 samples on two replicas: three minutes, unless the test asks for the end."""
HURRY: Final = f"{volume_reader.FOLDER}/hurry"
"""Where the counting task and the reader look alike: with this file its steps take no time."""
PATIENT: Final = {"heartbeatSeconds": 0.2, "leaseSeconds": 15, "memberTimeoutSeconds": 30}
"""A coordinator for tests in which nothing may be done twice. One that moved is found by its name
again after seconds, and a process may wait as long for a core: whose lease has run out by then may
do a step that somebody else does too."""
_SMALL: Final = {"containers": [{"name": CONTAINER, "resources": helm.AS_SMALL_AS_OTHERS}]}
_SOON: Final = "7."
"""The promise of how soon training moves again: not on cores that other tests use."""


class ClusterTraining(JobView):
    """The job, by its object, its pods, and its folder on the volume."""

    def __init__(
        self, hooks: Hooks, namespace: Kubectl, name: str = NAME, manifest: str = COUNTING
    ) -> None:
        super().__init__(namespace, name)
        self.hooks = hooks
        self.uid = ""
        self.manifest = manifest
        self.claim = f"{name}-checkpoints"

    def apply(
        self,
        task: str = COUNTING_TASK,
        step_seconds: float = STEP_SECONDS,
        pods: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> None:
        """Apply the job with its code; `spec` replaces fields of its spec, `pods` of its pods'."""
        slow = {"step_seconds": step_seconds, "hurry": HURRY}
        arguments = slow if task == COUNTING_TASK else {}
        self.apply_task(task, arguments, pods, **spec)

    def apply_task(
        self,
        entrypoint: str,
        arguments: Mapping[str, Any],
        pods: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> None:
        """Do the same with any task."""
        manifest = yaml.safe_load(self.manifest)
        manifest["metadata"]["name"] = self.name
        source = {"entrypoint": entrypoint, "arguments": arguments, "source": {"configMap": CODE}}
        manifest["spec"] |= {"task": source, **spec}
        make_small(manifest, pods)
        self.submit(manifest, _code())

    def submit(self, manifest: dict[str, Any], *beside: dict[str, Any]) -> None:
        """Apply the job's manifest beside other objects, such as its code."""
        self.kubectl.apply(*beside, manifest)
        self.meet()

    def meet(self) -> None:
        """Note which job it is, and begin to show its volume."""
        self.uid = self.get()["metadata"]["uid"]
        self.volume.start()

    def kill(self, role: str) -> None:
        """SIGKILL for the process in a pod of a role."""
        self.hooks.kill(self.kubectl.namespace, self.running(role), CONTAINER)

    def running(self, role: str) -> str:
        """A pod of a role that runs: others may still begin."""
        found: list[str] = []

        def runs() -> bool:
            found[:] = self._running(role)
            return bool(found)

        self.wait_until(runs, f"a {role} runs")
        return found[0]

    def _running(self, role: str) -> list[str]:
        return [
            pod["metadata"]["name"]
            for pod in self.pods(role)
            for container in pod["status"].get("containerStatuses", [])
            if "running" in container["state"] and "deletionTimestamp" not in pod["metadata"]
        ]

    @property
    def volume(self) -> VolumeReader:
        return VolumeReader(self.kubectl, self.claim)

    @property
    def folder(self) -> str:
        return f"{self.name}-{self.uid}"

    def has_summary(self) -> bool:
        return f"{self.folder}/summary.json" in self.volume.files()

    def progress(self) -> Status:
        """What status.json on the volume says, much more often than the object."""
        return self._read("status.json")

    def samples(self) -> int:
        return int(self.progress().get("samples", 0))

    def wait_until(self, holds: Callable[[], bool], what: str, limit: timedelta = LIMIT) -> None:
        """Return once it holds; otherwise fail with the progress on the volume."""
        try:
            super().wait_until(holds, what, limit)
        except NotInTime:
            sys.stderr.write(f"status.json: {json.dumps(self.progress())}\n")
            raise

    def train(self, share: float = 0.06) -> None:
        """Return when so much of an epoch was trained."""
        self.wait_until(lambda: self.samples() >= share * SAMPLES, f"{share} of an epoch")

    def complete(self) -> Status:
        """Wait for the end, which is good and keeps all promises; the summary."""
        summary = self.end()
        self._assert_promises_held()
        return summary

    def end(self) -> Status:
        """Let the task hurry, and wait for the end, which is good; the summary."""
        self.hurry()
        ends = {"Complete", "Failed"}
        self.wait_until(lambda: self.status().get("phase") in ends, "the job ends")
        assert self.condition("Complete").get("status") == "True", self.status()
        assert self.status()["phase"] == "Complete"
        summary: Status = {}

        def is_read() -> bool:
            summary.update(self._read("summary.json"))
            return bool(summary)

        self.wait_until(is_read, "its summary can be read")
        return summary

    def hurry(self) -> None:
        self.volume.wait()
        self.kubectl.run("exec", self.volume.pod, "--", "touch", HURRY)

    def trained(self) -> dict[str, Tensor]:
        return load(self.volume.content(f"{self.folder}/model.safetensors"))

    def _read(self, name: str) -> Status:
        found: Status = json.loads(self.volume.content(f"{self.folder}/{name}") or "{}")
        return found

    def _assert_promises_held(self) -> None:
        with self.volume.copied(self.folder) as folder:
            # What is violated makes it exit with 1; its words say what that is.
            done = commands.disttrain("audit", "--json", folder)
        assert done.out, done.err
        findings = [
            finding
            for finding in json.loads(done.out)["findings"]
            if not finding["promise"].startswith(_SOON)
        ]
        assert findings
        assert [one for one in findings if one["standing"] in {"violated", "not whole"}] == []


def make_small(manifest: dict[str, Any], pods: Mapping[str, Any] | None = None) -> None:
    """Let several jobs of such pods fit on a node; `pods` are fields of their specs."""
    for part in ("coordinator", "parameterServer", "replicas"):
        manifest["spec"][part] |= {"template": {"spec": {**_SMALL, **(pods or {})}}}
    # Several that take all of the node's cores would wait for each other most of the time.
    manifest["spec"]["replicas"].setdefault("threads", 1)


def assert_every_sample_was_applied(job: ClusterTraining, summary: Status) -> None:
    """Nothing skipped, and exactly as much repeated as the summary says."""
    counts = job.trained()["counts"]
    assert int(counts.min()) >= EPOCHS, f"samples were skipped: {counts}"
    repeated, most = int(counts.sum()) - EPOCHS * SAMPLES, summary["samplesRepeated"]
    assert most - summary["samplesPartiallyApplied"] <= repeated <= most


def assert_nothing_was_lost_or_repeated(job: ClusterTraining, summary: Status) -> None:
    """Each sample was applied exactly once in each epoch."""
    assert (summary["samplesRepeated"], summary["updatesLost"]) == (0, 0), summary
    counts = job.trained()["counts"]
    assert counts.eq(EPOCHS).all(), counts


def environment() -> dict[str, str]:
    """Variables of an operator whose jobs run the image that tests build."""
    return {"DISTTRAIN_RUNTIME_IMAGE": product_images.RUNTIME}


def _code() -> dict[str, Any]:
    # One of the tasks is the example's, only slower.
    files = {path.name: path.read_text() for path in (*TASKS.glob("*.py"), DIGITS)}
    kind = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CODE}}
    return {**kind, "data": files}
