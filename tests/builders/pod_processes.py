"""The processes of a job as a kubelet starts them: each by its environment alone, no launcher."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import yaml

from builders.runs import COUNTING, TASKS, TIMEOUT_SECONDS, Watched
from builders.warm_processes import WarmPod
from disttrain.job import pod_layout
from disttrain.job.credentials import Credentials, encode
from disttrain.job.names import Role
from disttrain.job.pod_layout import Variable
from disttrain.launcher import run

UID = "0b5c0f5e-6d5d-4a0e-9d3a-3f1c9c0a7f11"

ALL = ("coordinator", "shard-0", "shard-1", "replica-a", "replica-b")
"""Two shards; replicas have names of pods, which are no indices."""
OF_TWO = {
    "spec.replicas": {"count": 2, "partitions": 2, "device": "cpu"},
    "spec.task.entrypoint": "counting:CountingInParts",
}
"""Replicas of two processes."""
ALL_OF_TWO = (
    *("coordinator", "shard-0", "shard-1"),
    *(f"replica-{index}-{partition}" for index in range(2) for partition in range(2)),
)


class PodJob(Watched):
    """A job whose processes a test starts, kills, tells to end and starts again."""

    def __init__(
        self,
        folder: Path,
        assignments: Mapping[str, Any] | None = None,
        credentials: Mapping[str, Credentials] | None = None,
        manifest: str = COUNTING,
    ) -> None:
        self.folder = folder
        self.output = folder / "checkpoints" / f"counting-{UID}"
        self.processes: dict[str, subprocess.Popen[bytes] | WarmPod] = {}
        self.incarnations: dict[str, int] = {}
        self.changed: dict[str, Mapping[str, str]] = {}
        """Variables of single processes that are not as usual."""
        self.before: dict[str, Sequence[str]] = {}
        """What single processes are run by, such as `ip netns exec`; () imports all by itself."""
        self._is_encrypted = credentials is not None
        self._ports = ExitStack()
        """Nobody else on this machine is given one of them."""
        port = self._ports.enter_context(run.reserve_port())
        self.coordinator_address = f"tcp://127.0.0.1:{port}"
        """The same over all of its incarnations."""
        for task in TASKS.glob("*.py"):
            shutil.copy(task, folder)
        for role, issued in (credentials or {}).items():
            (folder / f"{Role(role)}.json").write_bytes(encode(issued))
        job = yaml.safe_load(manifest)
        job["metadata"] |= {"uid": UID, "namespace": "tests"}
        if credentials is None:
            job["spec"]["transport"] = {"encryption": "none"}
        text = json.dumps(_changed(job, assignments or {}))
        (folder / pod_layout.LAUNCH_KEY).write_text(text)

    def start(self, *names: str) -> None:
        """Start processes; again one of the same name gets the same environment."""
        for name in names:
            old = self.processes.get(name)
            assert old is None or old.poll() is not None, f"{name} still runs"
            self.incarnations[name] = self.incarnations.get(name, 0) + 1
            self.processes[name] = self._started(name)

    def environment(self, name: str) -> dict[str, str]:
        """What a kubelet would say to a pod, with addresses of this machine."""
        role, _, index = name.partition("-")
        found = {
            Variable.ROLE: role,
            Variable.RUN_FOLDER: str(self.output),
            Variable.TASK_FOLDER: str(self.folder),
            Variable.LAUNCH_FILE: str(self.folder / "job.json"),
            Variable.TERMINATION_LOG: str(self.termination_log(name)),
            Variable.COORDINATOR_ADDRESS: self.coordinator_address,
            Variable.METRICS_ADDRESS: "127.0.0.1:0",
            Variable.POD_NAME: f"counting-{name}",
            Variable.POD_NAMESPACE: "tests",
            "OMP_NUM_THREADS": "1",
        }
        if role == "coordinator":
            found[Variable.LISTEN_ADDRESS] = self.coordinator_address
        if role == "shard":
            found |= {Variable.INDEX: index, Variable.LISTEN_ADDRESS: "tcp://127.0.0.1:0"}
        group, is_of_several, partition = index.partition("-")
        if is_of_several:
            found |= {Variable.INDEX: group, Variable.PARTITION: partition}
            found[Variable.POD_IP] = "127.0.0.1"
        if self._is_encrypted:
            found[Variable.CREDENTIALS_FILE] = str(self.folder / f"{role}.json")
        usual = {str(variable): value for variable, value in found.items()}
        return usual | dict(self.changed.get(name, {}))

    def announce(self, shard: str) -> str:
        """Have a shard tell others another address than it listens on; that address."""
        port = self._ports.enter_context(run.reserve_port())
        listen, announced = f"tcp://127.0.0.1:{port}", f"tcp://localhost:{port}"
        addresses = {Variable.LISTEN_ADDRESS: listen, Variable.ANNOUNCE_ADDRESS: announced}
        self.changed[shard] = {str(variable): value for variable, value in addresses.items()}
        return announced

    def set(self, path: str, value: object) -> None:
        """Change the manifest for the processes that start from now on."""
        file = self.folder / pod_layout.LAUNCH_KEY
        file.write_text(json.dumps(_changed(json.loads(file.read_text()), {path: value})))

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self.processes[name].kill()
        self.processes[name].wait(TIMEOUT_SECONDS)

    def restart(self, name: str) -> None:
        """Kill, and start again as a kubelet does."""
        self.kill(name)
        self.start(name)

    def tell_to_end(self, *names: str) -> None:
        """SIGTERM."""
        for name in names:
            self.processes[name].send_signal(signal.SIGTERM)

    def wait(self, name: str, timeout: float = TIMEOUT_SECONDS) -> int:
        """The exit code."""
        return self.processes[name].wait(timeout)

    def is_running(self, name: str) -> bool:
        return self.processes[name].poll() is None

    def termination_log(self, name: str) -> Path:
        """Where the process leaves its last words."""
        return self.folder / f"{name}.terminated"

    def outcome(self) -> dict[str, Any]:
        """What the coordinator's termination message says."""
        found: dict[str, Any] = json.loads(self.termination_log("coordinator").read_text())
        return found

    def log_file(self, name: str) -> Path:
        """What the process prints, over all of its incarnations."""
        return self.folder / f"{name}.stderr"

    def log(self, name: str) -> str:
        file = self.log_file(name)
        return file.read_text() if file.exists() else ""

    def member(self, name: str) -> dict[str, Any]:
        """What status.json says of a member."""
        return next(each for each in self.status()["members"] if each["name"] == name)

    def complete(self) -> None:
        """Wait until the coordinator has ended, as it should."""
        assert self.wait("coordinator") == 0
        assert self.outcome()["phase"] == "Complete", self.outcome()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: object, trace: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(TIMEOUT_SECONDS)
        self._ports.close()
        if error is not None:
            for name in self.processes:
                sys.stderr.write(f"--- {name} ---\n{self.log(name)[-4000:]}\n")

    def _started(self, name: str) -> "subprocess.Popen[bytes] | WarmPod":
        environment = os.environ | self.environment(name)
        before = self.before.get(name)
        if before is None:
            return WarmPod(environment, self.log_file(name))
        with self.log_file(name).open("ab") as log:
            return subprocess.Popen(
                [*before, *(sys.executable, "-P", "-m", "disttrain.launch.pod")],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def _changed(manifest: dict[str, Any], assignments: Mapping[str, Any]) -> dict[str, Any]:
    for path, value in assignments.items():
        *parents, last = path.split(".")
        place = manifest
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return manifest
