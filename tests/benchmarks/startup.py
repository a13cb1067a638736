"""Seconds from the command to the first training step: 2 shards and 3 replicas on 2 cores.

The task is examples/digits, whose imports (scikit-learn) are as heavy as a real one's. The first
step is the first push that a shard's ledger holds. One run before the measured ones warms the
caches of files.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders.report import Bar, print_report
from disttrain.parameter_server.ledger import RECORD, Kind

JOB = Path(__file__).parents[2] / "examples" / "digits" / "job.yaml"
LONGEST_SECONDS = 10.0
GIVE_UP_SECONDS = 120.0
CORES = {0, 1}
STARTED = re.compile(r"started process=(\S+)")


def main() -> None:
    """Measure and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one measured run, none before it")
    quick = parser.parse_args().quick
    os.sched_setaffinity(0, CORES & os.sched_getaffinity(0) or os.sched_getaffinity(0))
    if not quick:
        run_once()
    runs = [run_once() for _ in range(1 if quick else 5)]
    median = statistics.median(run["first_push_seconds"] for run in runs)
    bar = Bar("seconds to the first step, median", median, LONGEST_SECONDS, at_least=False)
    print_report("startup", {"shards": 2, "replicas": 3, "cores": len(CORES), "runs": runs}, [bar])


def run_once() -> dict[str, float]:
    """Start the command, wait for the first push, stop it. Seconds since the command."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "out"
        began = time.time()
        command = subprocess.Popen(
            [sys.executable, "-m", "disttrain", "run", str(JOB), "--output", str(output)],
            stdout=subprocess.DEVNULL,
        )
        try:
            pushed = first_push(output, command)
            started = {f"{name}_seconds": at - began for name, at in starts(output).items()}
        finally:
            command.terminate()
            command.wait(GIVE_UP_SECONDS)
    return started | {"first_push_seconds": pushed - began}


def first_push(output: Path, command: "subprocess.Popen[bytes]") -> float:
    """Unix time of the first push that any shard has applied completely."""
    deadline = time.time() + GIVE_UP_SECONDS
    while command.poll() is None and time.time() < deadline:
        for file in output.glob("ledger/shard-*.bin"):
            content = file.read_bytes()
            records = np.frombuffer(content, RECORD, len(content) // RECORD.itemsize)
            pushes = records[records["kind"] == Kind.PUSHED]
            if len(pushes):
                return float(pushes["time_ns"][0]) / 1e9
        time.sleep(0.02)
    message = f"no push in {GIVE_UP_SECONDS:.0f} s; see the log of a run of {JOB}"
    raise TimeoutError(message)


def starts(output: Path) -> dict[str, float]:
    """Unix times at which processes were started, as the launcher's log tells them."""
    found = {}
    for line in (output / "logs" / "launcher.log").read_text().splitlines():
        when, _, text = line.partition(" ")
        if match := STARTED.search(text):
            found[match[1]] = datetime.fromisoformat(when).timestamp()
    return found


if __name__ == "__main__":
    main()
