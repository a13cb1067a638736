import json
import logging
import sys
from typing import Any

import pytest

from disttrain_operator import settings
from disttrain_operator.errors import InvalidSettings
from disttrain_operator.telemetry import logs


def record(message: str, *arguments: Any, **about: Any) -> logging.LogRecord:
    made = logging.LogRecord("a.logger", logging.INFO, "file", 1, message, arguments, None)
    made.__dict__.update(about)
    return made


def test_a_line_of_json_says_which_job_it_is_about() -> None:
    key = "here/digits"
    line = logs.JsonLines().format(
        record("%s: done\nin two lines", key, namespace="here", job="digits", reason="Why")
    )

    assert "\n" not in line
    found = json.loads(line)
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "INFO",
        "logger": "a.logger",
        "message": "here/digits: done\nin two lines",
        "namespace": "here",
        "job": "digits",
        "reason": "Why",
    }


def test_an_exception_stays_within_its_line() -> None:
    try:
        raise ValueError("what went wrong")
    except ValueError:
        made = record("failed")
        made.exc_info = sys.exc_info()

    found = json.loads(logs.JsonLines().format(made))

    assert "ValueError: what went wrong" in found["error"]
    assert "job" not in found


@pytest.mark.parametrize(
    ("name", "value"), [("DISTTRAIN_LOG_LEVEL", "loud"), ("DISTTRAIN_LOG_FORMAT", "xml")]
)
def test_what_cannot_be_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidSettings, match=f"{name}: must be one of .* got '{value}'"):
        settings.read({name: value})


@pytest.mark.parametrize(("form", "kind"), [("json", logs.JsonLines), ("text", logging.Formatter)])
def test_the_environment_chooses_level_and_format(
    monkeypatch: pytest.MonkeyPatch, form: str, kind: type[logging.Formatter]
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(logging, "basicConfig", lambda **found: given.update(found))

    read = settings.read({"DISTTRAIN_LOG_FORMAT": form, "DISTTRAIN_LOG_LEVEL": "WARNING"})
    logs.configure(read.log_level, read.log_format)

    (handler,) = given["handlers"]
    assert type(handler.formatter) is kind
    assert given["level"] == "WARNING"


def test_what_strangers_bring_about_is_logged_now_and_then() -> None:
    now = 100.0
    sparing = logs.Sparing(10.0, lambda: now)
    made = record("Error handling request")
    assert [sparing.filter(made) for _ in range(3)] == [True, False, False]
    now = 109.0
    assert not sparing.filter(made)
    now = 110.0
    assert [sparing.filter(made) for _ in range(2)] == [True, False]


def test_the_server_that_strangers_talk_to_logs_sparingly() -> None:
    server = logging.getLogger("aiohttp.server")
    before = list(server.filters)
    try:
        logs.configure("INFO", "text")
        assert any(isinstance(each, logs.Sparing) for each in server.filters)
    finally:
        server.filters[:] = before
