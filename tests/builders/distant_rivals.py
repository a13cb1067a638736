"""DistributedDataParallel and torchft's DiLoCo on the machines of `SlowLinks`."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from builders.distant_jobs import EXAMPLE
from builders.runs import TASKS
from builders.slow_links import SlowLinks

PROGRAMS = Path(__file__).parents[1] / "benchmarks" / "contenders" / "low_communication"
_LIGHTHOUSE_PORT = 7074


def has_torchft() -> bool:
    return importlib.util.find_spec("torchft") is not None


class Ranks(AbstractContextManager["Ranks"]):
    """As many as there are machines, but the last, which has torchft's lighthouse."""

    def __init__(
        self,
        folder: Path,
        links: SlowLinks,
        ranks: int,
        settings: Mapping[str, Any],
        *,
        torchft: bool,
    ) -> None:
        """`settings`: of `rank.py`, without those that this knows."""
        self._folder, self._links = folder, links
        self._ranks = ranks
        self._processes: list[subprocess.Popen[str]] = []
        lighthouse = ""
        if torchft:
            where = links.address(ranks)
            lighthouse = f"http://{where}:{_LIGHTHOUSE_PORT}"
            bind = [f"{where}:{_LIGHTHOUSE_PORT}", str(ranks)]
            self._start(ranks, "lighthouse.py", *bind)
        for rank in range(ranks):
            own = {"rank": rank, "ranks": ranks, "address": links.address(rank)}
            places = {"first": links.address(0), "lighthouse": lighthouse}
            self._start(rank, "rank.py", json.dumps({**settings, **own, **places}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def lines(self, seconds: float) -> Iterator[dict[str, Any]]:
        """What the first rank prints; ends when a rank does, and after so many seconds."""
        first = self._processes[-self._ranks]
        assert first.stdout is not None
        end = threading.Timer(seconds, first.kill)
        end.start()
        try:
            for line in first.stdout:
                yield json.loads(line)
        finally:
            end.cancel()

    def printed(self) -> str:
        return "\n".join(file.read_text()[-2000:] for file in sorted(self._folder.glob("*.err")))

    def _start(self, machine: int, program: str, *arguments: str) -> None:
        paths = [str(TASKS.parent), str(EXAMPLE.parent), os.environ.get("PYTHONPATH", "")]
        variables = {
            "GLOO_SOCKET_IFNAME": "cable",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }
        with (self._folder / f"{program}{machine}.err").open("wb") as errors:
            process = subprocess.Popen(
                [*self._links.on(machine), sys.executable, str(PROGRAMS / program), *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | variables,
            )
        self._processes.append(process)
