"""The Prometheus metrics of a running process, as a scraper sees them."""

import urllib.error
import urllib.request


def scraped(address: str) -> str:
    """The whole page that `host:port` serves."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as reply:
        text: str = reply.read().decode()
        return text


def answered(address: str, path: str) -> int:
    """The HTTP status with which `host:port` answers."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def total(page: str, series: str) -> float:
    """Of all series with this name, whatever their labels."""
    lines = [line for line in page.splitlines() if line.startswith((f"{series} ", f"{series}{{"))]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def addresses(status: dict[str, object]) -> dict[str, str]:
    """Where each process of a job serves its metrics, by name."""
    members = status["members"]
    assert isinstance(members, list)
    found = {member["name"]: member["metricsAddress"] for member in members}
    return found | {"coordinator": str(status["metricsAddress"])}
