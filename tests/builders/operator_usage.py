"""What the operator's process uses: processor, memory, requests, looks at jobs."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from builders import operator_process, scraping
from cluster import Kubectl
from disttrain.launcher import run

JOBS = "disttrain_operator_jobs"
REQUESTS = "disttrain_operator_api_requests_total"
LOOKS = "disttrain_operator_reconcile_seconds_count"


class OperatorUsage:
    """The operator's process, and what it used."""

    def __init__(self, process: psutil.Process, port: int) -> None:
        self._process = process
        self._address = f"127.0.0.1:{port}"

    def cpu_seconds(self) -> float:
        """Of the process until now."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def peak_mb(self) -> float:
        """The most memory it had until now."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

    def requests(self) -> float:
        """Requests to the API server until now, but for watches: those do not depend on jobs."""
        asked = scraping.samples(self._page(), REQUESTS)
        return sum(each.value for each in asked if each.labels["verb"] != "WATCH")

    def requests_by_verb(self) -> dict[str, float]:
        """The same by verb and code, watches among them."""
        asked = scraping.samples(self._page(), REQUESTS)
        return {" ".join(each.labels.values()): each.value for each in asked}

    def looks(self) -> float:
        """How often it looked at a job until now."""
        return scraping.total(self._page(), LOOKS)

    def jobs(self) -> dict[str, int]:
        """How many jobs it counts, by phase."""
        found = Counter[str]()
        for each in scraping.samples(self._page(), JOBS):
            found[each.labels["phase"]] += int(each.value)
        return found

    def is_ready(self) -> bool:
        return scraping.is_up(self._address, "/readyz")

    def _page(self) -> str:
        return scraping.scraped(self._address)


class Meter:
    """What an operator used since a moment, but for what is left out."""

    def __init__(self, own: OperatorUsage) -> None:
        self._own = own
        self._cpu_seconds = own.cpu_seconds()
        self._requests = own.requests()
        self._looks = own.looks()

    def leave_out(self, cpu_seconds: float) -> None:
        """Leave out what was used for something else."""
        self._cpu_seconds += cpu_seconds

    def per_job(self, size: int) -> dict[str, float]:
        """Until now, for each of so many jobs."""
        return {
            "cpu_ms_per_job": 1000 * (self._own.cpu_seconds() - self._cpu_seconds) / size,
            "requests_per_job": (self._own.requests() - self._requests) / size,
            "looks_per_job": (self._own.looks() - self._looks) / size,
        }


@contextmanager
def measured(kubectl: Kubectl) -> Iterator[OperatorUsage]:
    """The operator as it is shipped: for all namespaces."""
    with run.reserve_port() as port, tempfile.TemporaryDirectory() as folder:
        log = Path(os.environ.get("DISTTRAIN_OPERATOR_LOG", f"{folder}/operator.log"))
        variables = {"DISTTRAIN_NAMESPACES": "", "DISTTRAIN_METRICS_PORT": str(port)}
        with operator_process.running(kubectl, log, **variables) as running:
            if running.process is None:
                raise RuntimeError(log.read_text())
            yield OperatorUsage(psutil.Process(running.process.pid), port)
