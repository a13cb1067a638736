"""What the first process of a container does for others."""

import os
import subprocess
import sys

from disttrain.launch import process_one

REMEMBERS = """
import os, signal
from disttrain.launch.process_one import Terminations
terminations = Terminations()
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGUSR1, lambda *_: None)
os.kill(os.getpid(), signal.SIGUSR1)
before = terminations.has_come()
os.kill(os.getpid(), signal.SIGTERM)
print(before, terminations.has_come(), terminations.has_come())
terminations.wait()
"""


def test_a_sigterm_that_somebody_else_handled_is_remembered() -> None:
    done = subprocess.run(
        [sys.executable, "-c", REMEMBERS], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "False True True\n"), done.stderr


def test_before_anybody_handles_it_sigterm_ends_the_process_as_it_should() -> None:
    code = (
        "import os, signal; from disttrain.launch import process_one;"
        "process_one.end_on_sigterm(7); os.kill(os.getpid(), signal.SIGTERM); signal.pause()"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert done.returncode == 7


def an_ended_child() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid


def test_only_what_nobody_waits_for_is_an_orphan() -> None:
    pid = an_ended_child()
    assert pid in process_one.reap(set())
    assert pid in process_one.reap({pid})
    assert pid not in process_one.ended_children()


def test_ended_children_are_seen_until_somebody_waits_for_them() -> None:
    pid = an_ended_child()
    assert pid in process_one.ended_children()
    os.waitpid(pid, 0)
    assert pid not in process_one.ended_children()


def test_looking_at_children_changes_no_signal() -> None:
    code = (
        "import signal; from disttrain.launch import process_one; process_one.ended_children();"
        "assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL"
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)
