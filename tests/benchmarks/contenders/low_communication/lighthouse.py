"""The lighthouse of torchft for so many ranks, until killed: ADDRESS:PORT RANKS."""

import sys
import time

from torchft._torchft import LighthouseServer

if __name__ == "__main__":
    server = LighthouseServer(
        bind=sys.argv[1], min_replicas=int(sys.argv[2]), join_timeout_ms=10_000
    )
    sys.stdout.write(f"{server.address()}\n")
    sys.stdout.flush()
    while True:
        time.sleep(3600)
