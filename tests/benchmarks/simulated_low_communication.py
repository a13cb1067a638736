"""Local steps over a slow network, beside Downpour: seconds and bytes to one accuracy.

In virtual time (`disttrain simulate`), which shapes lines and delays: the digits, 4 replicas whose
steps take 0.05 s each, lines of 10 Mbit/s each way, 25 ms for a message. Both with their defaults.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders.report import Bar, print_report, say

MANIFEST = Path(__file__).resolve().parents[2] / "examples" / "digits" / "job.yaml"
STEP_SECONDS, REPLICAS = 0.05, 4
NETWORK = ("--bandwidth", "10Mb", "--latency", "0.025")
CONTENDERS: Mapping[str, dict[str, Any]] = {
    "downpour": {"downpour": {}},
    "average": {"localSteps": {}},
    "average, replace": {"localSteps": {"adopt": "replace"}},
    "average, int8": {"localSteps": {"pushAs": "int8"}},
    "average, 4 fragments": {"localSteps": {"fragments": 4}},
    "a quorum of all, replace": {"localSteps": {"quorum": 4, "adopt": "replace"}},
    "a quorum of 3": {"localSteps": {"quorum": 3, "graceSeconds": 0.2}},
    "delayed Nesterov": {"localSteps": {"outer": {"delayedNesterov": {}}}},
}
TARGET, QUICK_TARGET = 0.96, 0.5
EPOCH = 1437


def main() -> None:
    """Simulate each, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run: that it works")
    target = QUICK_TARGET if parser.parse_args().quick else TARGET
    found = {}
    for name, strategy in CONTENDERS.items():
        found[name] = run = simulated(strategy, target)
        say(
            f"{name}: {run['seconds']:.1f} s, {run['samples']} samples, "
            f"{run['bytes'] / 1e6:.1f} MB, computing {run['computing']:.0%}"
        )
        assert run["targetMet"], f"{name} never had an accuracy of {target}"
    print_report("simulated_low_communication", {"target": target, "runs": found}, bars(found))


def bars(found: Mapping[str, dict[str, Any]]) -> list[Bar]:
    gradients, own = found["downpour"], found["average"]
    return [
        Bar("bytes, Downpour to local steps", gradients["bytes"] / own["bytes"], 10.0),
        Bar("seconds, Downpour to local steps", gradients["seconds"] / own["seconds"], 5.0),
        Bar("part of the time in which replicas compute", own["computing"], 0.95),
    ]


def simulated(strategy: Mapping[str, Any], target: float) -> dict[str, Any]:
    """One run, as `disttrain simulate --json` tells it."""
    stop = {"epochs": 60, "targetMetric": {"name": "accuracy", "atLeast": target}}
    command = [sys.executable, "-m", "disttrain", "simulate", str(MANIFEST)]
    command += ["--replicas", str(REPLICAS), "--step-seconds", str(STEP_SECONDS), *NETWORK]
    command += ["--set", f"spec.replicas.count={REPLICAS}"]
    command += ["--set", f"spec.strategy={json.dumps(strategy)}"]
    command += ["--set", f"spec.stop={json.dumps(stop)}", "--evaluate-every", str(EPOCH)]
    done = subprocess.run([*command, "--json"], check=True, capture_output=True, text=True)
    ((run,),) = [document["runs"] for document in json.loads(done.stdout)["jobs"]]
    assert isinstance(run, dict)
    return {name: value for name, value in run.items() if name != "staleness"}


if __name__ == "__main__":
    main()
