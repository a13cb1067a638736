"""Gives each claim of the default class a volume, as the provisioner of any other cluster does.

A process of its own: `start` starts it, and it looks for claims until the cluster goes.
"""

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from cluster import control_plane, network, volumes
from cluster.errors import CommandFailed
from cluster.kubectl import Kubectl
from cluster.processes import Process

NAME: Final = "provisioner"
CLAIMS: Final = "/api/v1/persistentvolumeclaims"
PAUSE_SECONDS: Final = 0.5
"""Between two looks, which cost milliseconds."""


def start() -> Process:
    """Start it; returns at once."""
    here = Path(__file__).parents[1]
    command = (sys.executable, "-c", "from cluster import provisioner; provisioner.main()")
    return Process.start(NAME, network.inside(*command), {"PYTHONPATH": str(here)})


def main() -> None:
    """Serve claims for ever."""
    while True:
        # Tests stop the API server for a while: the next look finds what failed meanwhile.
        with suppress(CommandFailed):
            _serve(control_plane.administrator())
        time.sleep(PAUSE_SECONDS)


def is_waiting(claim: dict[str, Any]) -> bool:
    """Tell whether a claim wants a volume of the class, and has none."""
    spec = claim.get("spec", {})
    is_ours = spec.get("storageClassName") == volumes.CLASS
    return is_ours and "volumeName" not in spec and "deletionTimestamp" not in claim["metadata"]


def _serve(kubectl: Kubectl) -> None:
    found = json.loads(kubectl.content(CLAIMS) or '{"items": []}')
    for claim in filter(is_waiting, found["items"]):
        volumes.make_for(kubectl, claim)
