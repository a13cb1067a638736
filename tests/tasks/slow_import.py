"""Takes long to import: until then no replica trains."""

import time

from counting import Counting  # type: ignore[import-not-found]

__all__ = ["Counting"]

time.sleep(5)
