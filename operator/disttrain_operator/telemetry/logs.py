"""The operator's log: lines for people, or one JSON object a line for programs."""

import json
import logging
import time
from collections.abc import Mapping
from typing import Final

from disttrain_operator.environment import one_of

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
FORMATS: Final = ("text", "json")

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_ABOUT = ("namespace", "job", "reason")
"""What a line may say of the job that it is about."""


def configure(environ: Mapping[str, str]) -> None:
    """Log as DISTTRAIN_LOG_LEVEL and DISTTRAIN_LOG_FORMAT say. Raises InvalidSettings."""
    level = one_of(environ, "DISTTRAIN_LOG_LEVEL", LEVELS, "INFO")
    form = one_of(environ, "DISTTRAIN_LOG_FORMAT", FORMATS, "text")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level, handlers=[handler])


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
