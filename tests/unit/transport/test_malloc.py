"""The allocator settings, in a process that was started with them."""

import os
import subprocess
import sys

from disttrain.transport.malloc import MALLOC_ENVIRONMENT

_FAULTS = """
import resource
bytearray(8 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    bytearray(8 << 20)[::4096] = bytes(2048)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(environment: dict[str, str]) -> int:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    output = subprocess.run(
        [sys.executable, "-c", _FAULTS],
        env=plain | environment,
        capture_output=True,
        check=True,
        timeout=30,
    ).stdout
    return int(output)


def test_memory_that_was_used_once_is_not_faulted_in_again() -> None:
    assert page_faults(MALLOC_ENVIRONMENT) < page_faults({}) / 5
