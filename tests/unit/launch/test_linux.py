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
