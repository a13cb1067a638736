"""Which jobs a command is about: names, a label selector, or all of a namespace."""

from collections.abc import Sequence

from disttrain.cluster import references
from disttrain.cluster.errors import WrongInput
from disttrain.cluster.jobs import Jobs


def choose(
    jobs: Jobs, names: Sequence[str], selector: str = "", *, everything: bool = False
) -> list[str]:
    """Names of the jobs that are meant, once each. Raises WrongInput unless it is said one way."""
    ways = [bool(names), bool(selector), everything]
    if sum(ways) != 1:
        message = "say which jobs: names, or --selector LABELS, or --all; one of them"
        raise WrongInput(message)
    if names:
        return list(dict.fromkeys(map(references.name, names)))
    return [job["metadata"]["name"] for job in jobs.all(selector)]
