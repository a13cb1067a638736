import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from builders.scraping import scraped
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.replica.client_threads import Transfers
from disttrain.replica.ledger import SILENT, Ledger
from disttrain.replica.served_metrics import ServedMetrics


def a_connection(ledger: Ledger) -> Any:
    """As far as metrics look at one."""
    threads = (SimpleNamespace(transfers=Transfers()) for _ in range(2))
    return SimpleNamespace(pushes=next(threads), fetches=next(threads), ledger=ledger)


def test_pushes_and_fetches_are_served_once_each() -> None:
    served = ServedMetrics("127.0.0.1:0")
    served.connection = connection = a_connection(SILENT)
    connection.pushes.transfers.add(0.02, 1000)
    connection.fetches.transfers.add(0.01, 400)
    connection.fetches.transfers.add(0.01, 400)

    served.latest_report()
    served.latest_report()

    text = scraped(served.address)
    assert "disttrain_push_bytes_total 1000.0" in text
    assert "disttrain_push_seconds_count 1.0" in text
    assert "disttrain_fetch_bytes_total 800.0" in text
    assert "disttrain_fetch_seconds_count 2.0" in text


def test_a_report_moves_the_counters_by_what_is_new() -> None:
    served = ServedMetrics("127.0.0.1:0")
    reports = [
        ReplicaReport(steps=steps, compute_seconds=steps * 2.0, staleness=(1, 2))
        for steps in (3, 5)
    ]
    served.source = iter(reports).__next__
    served.latest_report()
    served.latest_report()

    text = scraped(served.address)
    assert "disttrain_steps_total 5.0" in text
    assert 'disttrain_step_seconds_total{doing="computing"} 10.0' in text
    assert "disttrain_gradient_staleness_updates_count 3.0" in text


def test_records_that_the_ledger_lacks_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = ServedMetrics("127.0.0.1:0")
    ledger = Ledger(tmp_path / "replica-0.i1.bin")
    served.connection = a_connection(ledger)
    with monkeypatch.context() as disk:
        disk.setattr(os, "write", _full)
        ledger.refused(1)
        ledger.refused(2)
    served.latest_report()
    served.latest_report()
    ledger.close()

    assert "disttrain_ledger_records_missing_total 2.0" in scraped(served.address)


def _full(descriptor: int, content: bytes) -> int:
    raise OSError(errno.ENOSPC, f"no room for {len(content)} bytes in {descriptor}")
