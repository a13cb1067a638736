"""The log format: one line per event, `time level process message key=value ...`.

A process calls `configure` once; a module makes `LOG = logs.get(__name__)` and writes
`LOG.info("checkpoint written", number=3, seconds=0.8)`. The message is a fixed text, what varies
is in the fields, so that lines can be searched and counted. Not structlog: its logfmt has no plain
message and other quotes, so all but `Log` would stay, and fewer than 40 lines would go.
"""

import json
import logging
import os
import re
import sys
import time
from collections.abc import Mapping
from enum import Enum
from io import TextIOWrapper
from pathlib import Path

_FIELDS = "disttrain_fields"
_PLAIN = re.compile(r"[^\s\"=]+")


class Log:
    """A module's logger. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, message: str, **fields: object) -> None:
        """What only somebody who looks for a mistake wants to read."""
        self._write(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: object) -> None:
        """Something that happens as it should, a few times a minute at most."""
        self._write(logging.INFO, message, fields)

    def warning(self, message: str, **fields: object) -> None:
        """Something that should not happen and was dealt with."""
        self._write(logging.WARNING, message, fields)

    def error(self, message: str, **fields: object) -> None:
        """Something that somebody has to deal with."""
        self._write(logging.ERROR, message, fields)

    def exception(self, message: str, **fields: object) -> None:
        """An error, with the traceback of the exception being handled in the lines below it."""
        self._logger.error(message, extra={_FIELDS: fields}, exc_info=sys.exception())

    def _write(self, level: int, message: str, fields: Mapping[str, object]) -> None:
        self._logger.log(level, message, extra={_FIELDS: fields})


def get(name: str) -> Log:
    return Log(name)


def configure(process: str, folder: Path | None) -> Path | None:
    """Send all logs of this process to `folder/PROCESS.log`, or to standard error without a folder.

    Appends, so that the incarnations of a restarted process follow one another. Returns the file.
    """
    file = None if folder is None else folder / f"{process}.log"
    handler = logging.StreamHandler(sys.stderr) if file is None else _file_handler(file)
    handler.setFormatter(LineFormatter(process))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    return file


def rename(process: str) -> None:
    """Write lines from now on under another name: the coordinator has named this process."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(LineFormatter(process))


class _FileHandler(logging.FileHandler):
    """Of a file that only this user reads."""

    def _open(self) -> TextIOWrapper:
        descriptor = open_to_append(self.baseFilename)
        return os.fdopen(descriptor, "a", encoding=self.encoding)


def _file_handler(file: Path) -> logging.Handler:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _FileHandler(file, mode="a", encoding="utf-8")


class LineFormatter(logging.Formatter):
    """Makes the line of an event for one process."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; below it the traceback, if the event has one."""
        message = record.getMessage().replace("\n", "\\n")
        fields: Mapping[str, object] = getattr(record, _FIELDS, {})
        words = [_timestamp(record), record.levelname.lower(), self._process, message]
        line = " ".join([*words, *(f"{name}={_value(value)}" for name, value in fields.items())])
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _timestamp(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Enum):
        return value.name.lower()
    text = str(value)
    if _PLAIN.fullmatch(text) and text.isprintable():
        return text
    # Escapes of a terminal and marks that turn the direction of text are written out.
    return json.dumps(text, ensure_ascii=not text.isprintable())


def open_to_append(path: str | Path, flags: int = 0) -> int:
    """Make or open `path` for appending, readable by this user only if it is new.

    Also an `opener` of `open`, whose flags it adds. Raises OSError, for a symbolic link, too.
    """
    appending = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags | appending, 0o600)
