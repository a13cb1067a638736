"""What the HTTP server of a running process answers, and its metrics as a scraper sees them."""

import urllib.error
import urllib.request
from http import HTTPStatus
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


class Answer(NamedTuple):
    """Of an HTTP server."""

    status: int
    body: str


def asked(address: str, path: str, seconds: float = 60.0) -> Answer:
    """What `host:port` answers."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=seconds) as reply:
            return Answer(reply.status, reply.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read().decode())


def is_up(address: str, path: str) -> bool:
    """Whether `host:port` answers that all is well."""
    try:
        return asked(address, path, seconds=5.0).status == HTTPStatus.OK
    except OSError:
        return False


def scraped(address: str) -> str:
    """The whole page of metrics that `host:port` serves."""
    answer = asked(address, "/metrics")
    assert answer.status == HTTPStatus.OK, answer
    return answer.body


def samples(page: str, series: str) -> list[Sample]:
    families = text_string_to_metric_families(page)
    return [sample for family in families for sample in family.samples if sample.name == series]


def total(page: str, series: str) -> float:
    """Of all series with this name, whatever their labels."""
    return sum(sample.value for sample in samples(page, series))


def addresses(status: dict[str, object]) -> dict[str, str]:
    """Where each process of a job serves its metrics, by name."""
    members = status["members"]
    assert isinstance(members, list)
    found = {member["name"]: member["metricsAddress"] for member in members}
    return found | {"coordinator": str(status["metricsAddress"])}
