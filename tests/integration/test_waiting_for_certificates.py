"""A process that gets no certificate yet: no kubelet shall end it for that."""

from pathlib import Path

import pytest

from builders import free_port
from builders.launches import wait_until
from builders.pod_processes import PodJob
from builders.scraping import asked, is_up, scraped
from builders.signing_port import SigningPort
from disttrain.job import pod_layout
from disttrain.job.credentials import encode
from disttrain.job.pod_layout import Variable

pytestmark = pytest.mark.landing


def test_who_waits_for_the_operator_says_that_it_lives(tmp_path: Path) -> None:
    port, address = SigningPort(), f"127.0.0.1:{free_port.find()}"
    with port.serving():
        """Its port is known from now on, and nobody answers there."""
    pod = port.pods("shard")[0]
    trust = tmp_path / "trust.json"
    trust.write_bytes(encode(port.trust))
    with PodJob(tmp_path, {"metadata.uid": port.uid}, credentials={}) as job:
        job.changed["shard-0"] = {
            Variable.CREDENTIALS_FILE: str(trust),
            Variable.TOKEN_FILE: str(port.applicant(pod, tmp_path).token),
            Variable.POD_UID: pod["metadata"]["uid"],
            Variable.METRICS_ADDRESS: address,
        }
        job.start("shard-0")
        wait_until(lambda: is_up(address, pod_layout.HEALTH_PATH), "it says that it lives")
        assert "no certificate yet" in job.log("shard-0")
        assert asked(address, pod_layout.READY_PATH).status == 503
        assert "disttrain_shard" not in scraped(address)
        with port.serving():
            wait_until(lambda: "disttrain_shard" in page(address), "it serves metrics")
        # It waits for the coordinator now.
        assert is_up(address, pod_layout.HEALTH_PATH)
        assert job.is_running("shard-0")


def page(address: str) -> str:
    try:
        return scraped(address)
    except OSError:
        return ""
