"""Metrics, the exporter and the format of logs."""

import json
import logging
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import scraping
from disttrain.telemetry import logs, metrics
from disttrain.telemetry.exporter import MetricsAddressError, Served
from disttrain.transport.header import Reason
from disttrain_monitoring import metrics_page


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    for handler in set(root.handlers) - set(before[0]):
        root.removeHandler(handler)
        handler.close()
    root.handlers[:], level = before
    root.setLevel(level)


def test_every_metric_has_the_prefix_and_a_text() -> None:
    metrics = [metric for group in metrics_page.groups().values() for metric in group]
    assert len(metrics) > 50
    assert all(metric.name.startswith("disttrain_") for metric in metrics)
    assert all(metric.means.endswith(".") for metric in metrics)


def test_a_counter_that_falls_is_served_as_it_was() -> None:
    served = Served("127.0.0.1:0")
    for counted in (3, 2):
        served.serve(
            (
                metrics.counter("lost", "Lost.", counted),
                metrics.counters("done", "Done.", "by", {"one": counted, "other": 3 - counted}),
                metrics.gauge("members", "Members.", counted),
            )
        )
    page = scraping.scraped(served.address)
    assert "disttrain_lost_total 3.0" in page
    assert 'disttrain_done_total{by="one"} 3.0' in page
    assert 'disttrain_done_total{by="other"} 1.0' in page
    assert "disttrain_members 2.0" in page


def test_a_process_lives_at_once_and_is_ready_when_it_says_so() -> None:
    served = Served("127.0.0.1:0")
    assert scraping.asked(served.address, "/healthz").status == 200
    assert scraping.asked(served.address, "/ready").status == 503
    served.health.is_ready = True
    assert scraping.asked(served.address, "/ready?verbose").status == 200
    served.health.begin(limit_seconds=-1.0)
    assert scraping.asked(served.address, "/healthz").status == 503


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000"])
def test_a_malformed_address_is_refused(address: str) -> None:
    with pytest.raises(MetricsAddressError, match=r"must be HOST:PORT"):
        Served(address)


def test_a_taken_address_is_refused() -> None:
    served = Served("127.0.0.1:0")
    with pytest.raises(MetricsAddressError, match="choose port 0"):
        Served(served.address)


def test_an_event_is_one_line(tmp_path: Path) -> None:
    file = logs.configure("shard-1", tmp_path)
    logs.get("test").warning(
        "push refused", reason=Reason.NOT_FINITE, sender=2, norm=0.123456789, text='a "b"\nc'
    )
    assert file == tmp_path / "shard-1.log"
    (line,) = file.read_text().splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z warning shard-1 push refused "
        r'reason=not_finite sender=2 norm=0\.123457 text="a \\"b\\"\\nc"',
        line,
    )


@pytest.mark.parametrize("value", ["\x1b[2J", "\x9b2J", "\u202egnp.exe", "a\x1b]0;t\a"])
def test_what_would_steer_a_terminal_is_written_out(tmp_path: Path, value: str) -> None:
    file = logs.configure("shard-1", tmp_path)
    logs.get("test").warning("refused", name=value)
    assert file is not None
    (line,) = file.read_text().splitlines()
    assert line.isprintable()
    assert line.endswith(f"name={json.dumps(value)}")


def test_a_log_is_for_this_user_alone_and_follows_no_link(tmp_path: Path) -> None:
    file = logs.configure("shard-1", tmp_path)
    assert file is not None
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (tmp_path / "shard-2.log").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        logs.configure("shard-2", tmp_path)


def test_an_exception_brings_its_traceback(tmp_path: Path) -> None:
    file = logs.configure("coordinator", tmp_path)
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        logs.get("test").exception("it went wrong", step=3)
    assert file is not None
    lines = file.read_text().splitlines()
    assert lines[0].endswith("error coordinator it went wrong step=3")
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_the_incarnations_of_a_process_follow_one_another_in_its_log(tmp_path: Path) -> None:
    for life in (1, 2):
        file = logs.configure("replica-0", tmp_path)
        logs.get("test").info("begins", life=life)
    assert file is not None
    assert [line[-6:] for line in file.read_text().splitlines()] == ["life=1", "life=2"]
