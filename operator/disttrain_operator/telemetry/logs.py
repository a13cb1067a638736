"""The operator's log: lines for people, or one JSON object a line for programs."""

import json
import logging
import time
from typing import Final

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
FORMATS: Final = ("text", "json")

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_ABOUT = ("namespace", "job", "reason")
"""What a line may say of the job that it is about."""


def configure(level: str, form: str) -> None:
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
