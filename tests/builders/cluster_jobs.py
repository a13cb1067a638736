"""Jobs for a cluster whose processes only pretend: of one small static program."""

import json
from typing import Any

from builders.jobs import a_spec
from cluster import busybox

FINISH = "/tmp/finish"
"""A coordinator that finds this file ends; what is in it is its last words."""

_WAIT = f"trap 'exit 143' TERM; while [ ! -s {FINISH} ]; do sleep 0.2; done"
_PRETEND_COORDINATOR = f"{_WAIT}; cat {FINISH} > /dev/termination-log"
PRETEND_MEMBER = "trap 'exit 0' TERM; while true; do sleep 0.2; done"


def outcome(phase: str, reason: str, message: str) -> str:
    """The last words of a coordinator."""
    return json.dumps({"phase": phase, "reason": reason, "message": message, "samples": 1})


def pretending(name: str, **spec: Any) -> dict[str, Any]:
    """A job of 2 shards and 2 replicas; `spec` replaces fields of its spec."""
    written = {
        "image": busybox.IMAGE,
        "coordinator": {"template": template(_PRETEND_COORDINATOR)},
        "parameterServer": {"shards": 2, "template": template(PRETEND_MEMBER)},
        "replicas": {"count": 2, "template": template(PRETEND_MEMBER)},
    }
    header = {"apiVersion": "disttrain.dev/v1alpha1", "kind": "DistTrainJob"}
    return {**header, "metadata": {"name": name}, "spec": a_spec(**{**written, **spec})}


def template(script: str) -> dict[str, Any]:
    """A pod template whose container runs a script and is ready at once."""
    container = {
        "name": "disttrain",
        "command": ["sh", "-c", script],
        "startupProbe": None,
        "readinessProbe": None,
        "livenessProbe": None,
        "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}},
    }
    return {"spec": {"containers": [container], "terminationGracePeriodSeconds": 5}}
