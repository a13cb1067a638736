import urllib.request

from disttrain.coordinator.reports import ReplicaReport
from disttrain.replica.served_metrics import ServedMetrics


def test_pushes_and_fetches_are_served_once_each() -> None:
    served = ServedMetrics("127.0.0.1:0")
    served.pushes.add(0.02, 1000)
    served.fetches.add(0.01, 400)
    served.fetches.add(0.01, 400)

    served.latest_report()
    served.latest_report()

    text = scrape(served.address)
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

    text = scrape(served.address)
    assert "disttrain_steps_total 5.0" in text
    assert 'disttrain_step_seconds_total{doing="computing"} 10.0' in text
    assert "disttrain_gradient_staleness_updates_count 3.0" in text


def scrape(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return str(answer.read(), "utf-8")
