"""A shard or replica that only lives, and does what `PROCESS.do` in its run folder says.

`child` starts a process that outlives it, `daemon` one in a session of its own, `final` raises a
final error, `crash` an unexpected one, a number is the exit code.
"""

import subprocess
import threading
import time
from pathlib import Path

from disttrain.errors import FinalError
from disttrain.launch.config import LaunchConfig


def main(config: LaunchConfig) -> int:
    (config.run_folder / f"{config.process}.threads").write_text(str(threading.active_count()))
    file = config.run_folder / f"{config.process}.do"
    while True:
        if file.exists() and (word := _taken(file)):
            if word.isdecimal():
                return int(word)
            _do(word)
        if (config.run_folder / "coordinator.exit").exists():
            return 0
        time.sleep(0.02)


def _taken(file: Path) -> str:
    word = file.read_text()
    file.unlink()
    return word


def _do(word: str) -> None:
    if word == "final":
        message = "digits.py, line 3: the loss is not a scalar"
        raise FinalError(message)
    if word == "crash":
        message = "nobody expected this"
        raise RuntimeError(message)
    if word in {"child", "daemon"}:
        subprocess.Popen(["sleep", "1000"], start_new_session=word == "daemon")
