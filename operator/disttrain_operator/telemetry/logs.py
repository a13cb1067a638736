"""The operator's log: lines for people, or one JSON object a line for programs."""

import json
import logging
import time
from collections.abc import Callable
from typing import Final

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
FORMATS: Final = ("text", "json")

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_BY_STRANGERS: Final = "aiohttp.server"
"""Logs a traceback of each request that is not HTTP, whoever sends it."""
_SPARING_SECONDS: Final = 10.0
_ABOUT = ("namespace", "job", "reason")
"""What a line may say of the job that it is about."""


def configure(level: str, form: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger(_BY_STRANGERS).addFilter(Sparing(_SPARING_SECONDS))


class Sparing(logging.Filter):
    """Lets one record through, and the next one only some seconds later."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._clock = clock
        self._next = clock()

    def filter(self, _record: logging.LogRecord) -> bool:
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True


class JsonLines(logging.Formatter):
    """Makes a JSON object of each record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line: time, level, logger, message; and job, namespace, reason, error."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in _ABOUT if hasattr(record, name)}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
