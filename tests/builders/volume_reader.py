"""What lies in the volume of a claim, wherever a cluster keeps it: by a pod that shows it."""

import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from builders import pods, product_images
from cluster import Kubectl, commands

FOLDER: Final = "/checkpoints"
PORT: Final = 8000
ALL_FILES: Final = ("-ignore_readdir_race", "-type", "f")
_USER: Final = 65532
"""Whom the operator has jobs run as."""
_EVEN_WHERE_NO_OTHERS_START: Final = {
    "key": "node.kubernetes.io/unschedulable",
    "operator": "Exists",
}


@dataclass(frozen=True, slots=True)
class VolumeReader:
    """A pod of the runtime's image, started once; it waits for the claim."""

    kubectl: Kubectl
    claim: str

    @property
    def pod(self) -> str:
        return f"{self.claim}-reader"

    def start(self) -> None:
        """Start it; returns at once."""
        serve = ("python3", "-m", "http.server", str(PORT), f"--directory={FOLDER}")
        pod = pods.mounting(pods.restricted(self.pod, *serve), self.claim, FOLDER)
        (container,) = pod["spec"]["containers"]
        container["image"] = product_images.RUNTIME
        container["workingDir"] = FOLDER
        listens = {"tcpSocket": {"port": PORT}, "periodSeconds": 1, "failureThreshold": 30}
        container["readinessProbe"] = listens
        # The kubelet would go through files that the job renames meanwhile.
        group = {"fsGroup": _USER, "fsGroupChangePolicy": "OnRootMismatch"}
        pod["spec"]["securityContext"] |= {"runAsUser": _USER, **group}
        pod["spec"]["tolerations"] = [_EVEN_WHERE_NO_OTHERS_START]
        self.kubectl.apply(pod)

    def content(self, path: str) -> bytes:
        """What a file says now; nothing while it, the volume or the pod is not there."""
        place = f"/api/v1/namespaces/{self.kubectl.namespace}/pods/{self.pod}:{PORT}/proxy"
        return self.kubectl.content(f"{place}/{path}")

    def files(self) -> set[str]:
        """The paths of all files; raises CommandFailed where nobody can look."""
        self.wait()
        found = self.kubectl.run("exec", self.pod, "--", "find", ".", *ALL_FILES)
        return {line.removeprefix("./") for line in found.splitlines()}

    @contextmanager
    def copied(self, folder: str) -> Iterator[Path]:
        """A copy of a folder on this machine, as long as the context lasts."""
        self.wait()
        # Not kubectl cp: what checkpoints share are hard links, and it makes empty files of them.
        pack = ("tar", "--create", "--hard-dereference", f"--directory={FOLDER}", folder)
        packing = shlex.join(map(str, self.kubectl.command("exec", self.pod, "--", *pack)))
        with tempfile.TemporaryDirectory() as place:
            script = f"set -o pipefail; {packing} | tar --extract --directory={place}"
            commands.run("bash", "-c", script)
            yield Path(place) / folder

    def wait(self) -> None:
        """Return when it can be read."""
        self.kubectl.wait_until("Ready", f"pod/{self.pod}")
