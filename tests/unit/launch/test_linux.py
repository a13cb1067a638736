"""What Linux says of processes."""

import os
import time

from disttrain.launch import linux


def test_a_process_that_computes_uses_processor_time() -> None:
    before, end = linux.used_ticks(os.getpid()), time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert linux.used_ticks(os.getpid()) > before


def test_a_process_that_is_gone_has_used_none() -> None:
    above_all = 2**22 + 1
    assert linux.used_ticks(above_all) == 0


def test_a_process_has_ended_before_its_parent_asks_how_and_after() -> None:
    assert not linux.has_ended(os.getpid())
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    assert not linux.has_ended(pid)

    os.close(writing)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert linux.has_ended(pid)

    os.waitpid(pid, 0)
    assert linux.has_ended(pid)
