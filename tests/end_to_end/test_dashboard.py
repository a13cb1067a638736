"""A real Prometheus beside a real job: every panel shows something, and no alert cries wolf."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from builders import helm, pod_discovery, prometheus
from builders.helm import CHART
from builders.job_view import JobView
from builders.product_images import REPOSITORY
from builders.prometheus import Prometheus
from cluster import Kubectl, commands
from cluster.errors import NotInTime
from cluster.hooks import Hooks
from disttrain_monitoring import labels, query
from disttrain_monitoring.alerts import ALERTS

pytestmark = pytest.mark.landing

JOB: Final = "digits"
SHARDS: Final = 2
REPLICAS: Final = 3
SCRAPE_SECONDS: Final = 1
WINDOW: Final = "60s"
"""What Grafana puts in place of its name for a window, if Prometheus scrapes every 15 seconds.

What happens once, such as a job's start, is seen if scrapes before and after it lie in one window.
A scrape has a second here, and fails while processes import PyTorch on all cores.
"""
START_LIMIT: Final = timedelta(seconds=480)
"""PyTorch is imported once per process, on cores that others use."""
DATA_LIMIT: Final = timedelta(seconds=360)

EMPTY_PANELS: Final = {
    "Errors by kind": "a healthy operator makes none",
    "Watches that broke, and lists": "a healthy API server breaks none",
    "From created to ended": "the job still trains",
    "Jobs that ended": "the job still trains",
    "Requests refused by reason": "healthy processes of one version and job refuse nothing",
}
EMPTY_ALERTS: Final = {
    "DistTrainOperatorDown": "it asks for a metric that is missing, and the operator serves it",
    "DistTrainReconcileErrors": "a healthy operator makes none",
}

SMALL: Final = {
    "spec": {"containers": [{"name": "disttrain", "resources": helm.AS_SMALL_AS_OTHERS}]}
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A query of a panel, as Grafana would send it."""

    panel: str
    text: str


class Scene:
    """A job that trains, and a Prometheus that watches it and the operator."""

    def __init__(self, namespace: Kubectl, asked: Prometheus, targets: Path) -> None:
        self.job = JobView(namespace, JOB)
        self.prometheus = asked
        self._targets = targets
        self._start = time.time()

    def has_data(self, text: str) -> bool:
        """Whether a query has had a value since the beginning."""
        return self.prometheus.has_data(text, self._start, time.time())

    def latest(self, text: str) -> dict[str, float]:
        """The last value of each series of a query, by the values of its labels."""
        found = self.prometheus.series(text, self._start, time.time())
        return {" ".join(each["metric"].values()): float(each["values"][-1][1]) for each in found}

    def wait_for_data(self, texts: list[str], limit: timedelta = DATA_LIMIT) -> list[str]:
        """Wait until all queries have had values; return those that have none in time."""
        empty = list(texts)

        def all_found() -> bool:
            pod_discovery.write(self.job.kubectl, self._targets)
            empty[:] = [text for text in empty if not self.has_data(text)]
            return not empty

        try:
            commands.wait_until(
                all_found, "every query has data", limit=limit, pause=timedelta(seconds=1)
            )
        except NotInTime:
            return empty
        return []


@pytest.fixture
def scene(
    prometheus_programs: None, namespace: Kubectl, operator: str, runtime_image: str, tmp_path: Path
) -> Iterator[Scene]:
    """The job trains already."""
    targets = tmp_path / "targets.json"
    with watching(namespace, targets, tmp_path) as asked:
        found = Scene(namespace, asked, targets)
        apply_digits(namespace)
        running = query.of_job("disttrain_job_phase", 'phase="Running"') + " == 1"
        # A shard serves, and is known to serve, before it was scraped.
        shards = f'count(up{{{labels.COMPONENT}="shard"}} == 1) == {SHARDS}'
        # The incarnation of a replica that has not joined yet is none that could begin anew.
        joined = query.of_job("disttrain_members", 'role="replica"') + f" == {REPLICAS}"
        must = [filled_in(text, namespace.namespace) for text in (running, joined)] + [shards]
        assert found.wait_for_data(must, START_LIMIT) == [], "training does not begin"
        yield found


@pytest.mark.nightly
def test_every_panel_and_every_alert_has_data_while_a_job_trains(
    scene: Scene, hooks: Hooks, namespace: Kubectl
) -> None:
    # A death is what half of the panels are for.
    replica = scene.job.pods("replica")[0]["metadata"]["name"]
    hooks.kill(namespace.namespace, replica, "disttrain")
    panels = list(panel_queries(scene, namespace.namespace))
    alerts = [alert for alert in ALERTS if alert.name not in EMPTY_ALERTS]
    must = [asked.text for asked in panels if asked.panel not in EMPTY_PANELS]

    death = list(signs_of_a_death(namespace.namespace))

    empty = scene.wait_for_data([*must, *(alert.value for alert in alerts), *death])

    assert empty == []
    for asked in panels:
        # Those that may be empty are asked, too: a query that is wrong is refused.
        scene.has_data(asked.text)
    assert_alerts_are_quiet(scene)
    assert_it_is_about_this_job(scene, namespace.namespace)


def signs_of_a_death(namespace: str) -> Iterator[str]:
    """What has a value once a replica that died is back."""
    of_replicas = 'role="replica"'
    yield f"disttrain_operator_restarts_total{{{of_replicas}}} > 0"
    yield filled_in(query.of_job("disttrain_restarts_total", of_replicas) + " > 0", namespace)


def assert_alerts_are_quiet(scene: Scene) -> None:
    rules = scene.prometheus.rules()
    assert {rule["name"]: rule["health"] for rule in rules} == {
        alert.name: "ok" for alert in ALERTS
    }
    assert scene.latest('ALERTS{alertstate="firing"}') == {}


def assert_it_is_about_this_job(scene: Scene, namespace: str) -> None:
    up = scene.latest(f"count by ({labels.COMPONENT}) (up)")
    assert set(up) == {"coordinator", "shard", "replica", "operator"}
    of_job = scene.latest(f"count by ({labels.EACH_JOB}) (disttrain_job_phase)")
    assert set(of_job) == {f"{JOB} {namespace}"}
    bands = filled_in(query.of_job("disttrain_gradient_staleness_updates_count"), namespace)
    assert min(scene.latest(f'{bands.rstrip("}")}, component="shard"}}').values()) > 0


def panel_queries(scene: Scene, namespace: str) -> Iterator[Asked]:
    """The queries of the committed dashboards, their variables as Grafana finds them."""
    for file in sorted((CHART / "dashboards").glob("*.json")):
        board = json.loads(file.read_text())
        shards = shards_by_variable(scene, board, namespace)
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                for text in filled_in_each(target["expr"], namespace, shards):
                    yield Asked(panel["title"], text)


def shards_by_variable(scene: Scene, board: dict[str, Any], namespace: str) -> list[str]:
    """Choose the job as a person does: each variable offers it."""
    found: dict[str, list[str]] = {}
    for variable in board["templating"]["list"][1:]:
        words = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
        assert words is not None, variable
        series, label = filled_in(words[1], namespace), words[2]
        found[variable["name"]] = scene.prometheus.label_values(label, series)
    if not found:
        return []
    assert found["namespace"] == [namespace]
    assert found["job"] == [JOB]
    assert found["shard"] == [f"{JOB}-shard-{index}" for index in range(SHARDS)]
    return found["shard"]


def filled_in_each(text: str, namespace: str, shards: list[str]) -> list[str]:
    if "$shard" not in text:
        return [filled_in(text, namespace)]
    return [filled_in(text.replace("$shard", shard), namespace) for shard in shards]


def filled_in(text: str, namespace: str) -> str:
    values = {"$namespace": namespace, "$job": JOB, query.WINDOW: WINDOW}
    for name, value in values.items():
        text = text.replace(name, value)
    assert "$" not in text
    return text


def apply_digits(namespace: Kubectl) -> None:
    """The example, which here trains until it is deleted and makes checkpoints soon."""
    example = REPOSITORY / "examples" / "digits"
    job = yaml.safe_load((example / "job.yaml").read_text())
    job["spec"] |= {"stop": {"seconds": 3600}, "checkpoint": {"everySeconds": 5}}
    # So that there is an error of a prediction.
    job["spec"]["strategy"] = {
        "downpour": {
            "optimizer": {"momentum": {"learningRate": 0.01, "momentum": 0.5}},
            "staleness": {"predict": {}},
        }
    }
    for part in ("coordinator", "parameterServer", "replicas"):
        job["spec"].setdefault(part, {})["template"] = SMALL
    code = {"digits.py": (example / "digits.py").read_text()}
    metadata = {"name": "digits-code"}
    namespace.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": code})
    namespace.apply(job)


@contextmanager
def watching(namespace: Kubectl, targets: Path, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus with the chart's rules, configured as the docs say but for how it finds pods."""
    config = documented_config()
    config["global"] = {
        "scrape_interval": f"{SCRAPE_SECONDS}s",
        "evaluation_interval": f"{SCRAPE_SECONDS}s",
    }
    config["rule_files"] = [str(CHART / "alerts" / "rules.yaml")]
    (scrape,) = config["scrape_configs"]
    assert scrape.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    scrape |= pod_discovery.access(namespace, folder)
    scrape["file_sd_configs"] = [{"files": [str(targets)], "refresh_interval": "1s"}]
    with prometheus.running(config, folder) as found:
        yield found


def documented_config() -> dict[str, Any]:
    text = (REPOSITORY / "docs" / "monitoring.md").read_text()
    blocks = [yaml.safe_load(each) for each in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    (found,) = [block for block in blocks if "scrape_configs" in block]
    config: dict[str, Any] = found
    return config
