"""A real Prometheus as a process of this machine, from Debian's package."""

import json
import math
import shutil
import subprocess
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import yaml

from builders import free_port, mortal, scraping
from cluster import commands, debian

PACKAGES: Final = {"prometheus": "prometheus", "promtool": "prometheus"}
START_LIMIT: Final = timedelta(seconds=60)
_PATIENCE_SECONDS: Final = 120.0
_ATTEMPTS: Final = 3
"""A free port may be somebody else's by the time that Prometheus asks for it."""

Json = dict[str, Any]


class Prometheus:
    """One that runs, by what its HTTP interface answers."""

    def __init__(self, address: str) -> None:
        self._address = address

    def is_ready(self) -> bool:
        return scraping.is_up(self._address, "/-/ready")

    def series(self, query: str, start: float, end: float) -> list[Json]:
        """The series of a query from one time to another, a value per second.

        Raises AssertionError with Prometheus' words for a query that it does not take.
        """
        answer = self._ask("query_range", query=query, start=start, end=end, step=1)
        found: list[Json] = answer["result"]
        return found

    def has_data(self, query: str, start: float, end: float) -> bool:
        """Whether the query ever had a value that is a number."""
        values = (value for each in self.series(query, start, end) for _, value in each["values"])
        return any(not math.isnan(float(value)) for value in values)

    def label_values(self, label: str, series: str) -> list[str]:
        """The values of a label, of series that a selector picks."""
        found: list[str] = self._ask(f"label/{label}/values", **{"match[]": series})
        return found

    def rules(self) -> list[Json]:
        groups = self._ask("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def _ask(self, what: str, **parameters: object) -> Any:
        page = f"/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        answer = scraping.asked(self._address, page, _PATIENCE_SECONDS)
        assert answer.status == HTTPStatus.OK, f"{what} of {parameters}: {answer.body}"
        return json.loads(answer.body)["data"]


def install() -> None:
    """Install the package if it is missing; raise Unavailable where we may not."""
    debian.install_missing(PACKAGES)


@contextmanager
def running(config: Json, folder: Path) -> Iterator[Prometheus]:
    """One with this configuration, that keeps everything in `folder` while the context lasts."""
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    process, prometheus = _started(file, folder)
    try:
        yield prometheus
    finally:
        process.kill()
        process.wait()


def _started(file: Path, folder: Path) -> tuple[subprocess.Popen[bytes], Prometheus]:
    for attempt in range(_ATTEMPTS):
        port = free_port.find()
        prometheus = Prometheus(f"127.0.0.1:{port}")
        log = folder / f"prometheus-{attempt}.log"
        process = _process(file, folder / f"data-{attempt}", port, log)
        commands.wait_until(
            lambda process=process, prometheus=prometheus: (  # type: ignore[misc]
                process.poll() is not None or prometheus.is_ready()
            ),
            "Prometheus is ready",
            limit=START_LIMIT,
        )
        if process.poll() is None:
            return process, prometheus
    message = f"Prometheus does not start:\n{log.read_text()}"
    raise AssertionError(message)


def _process(file: Path, data: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    program = shutil.which("prometheus")
    assert program is not None
    options = (
        f"--config.file={file}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    with log.open("wb") as stream:
        return subprocess.Popen(mortal.command(program, *options), stdout=stream, stderr=stream)
