"""What a person would look at when a test on a cluster failed, short enough for a log."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Final

from builders.job_view import JobView
from builders.operator_process import OperatorProcess
from cluster import Kubectl
from cluster.errors import CommandFailed

_MOST_CHARACTERS: Final = 6000
"""Of each question's answer; its end is kept, where the newest stands."""
_LOG_LINES: Final = 25
_MOST_PODS: Final = 12
_PATIENCE: Final = timedelta(seconds=15)
_QUESTIONS: Final = (
    ("get", "disttrainjobs", "-o", "yaml"),
    ("get", "pods", "-o", "wide"),
    ("get", "events", "--sort-by=.lastTimestamp"),
)


def of_all(fixtures: Iterable[object]) -> Iterator[tuple[str, str]]:
    """A title and a text for each namespace and each operator among a test's fixtures."""
    namespaces = {}
    for each in fixtures:
        if isinstance(each, Kubectl) and each.namespace != "default":
            namespaces[each.namespace] = each
        if isinstance(each, JobView):
            namespaces[each.kubectl.namespace] = each.kubectl
        if isinstance(each, OperatorProcess):
            yield "operator", each.log.read_text(errors="replace")[-_MOST_CHARACTERS:]
    for name, namespace in namespaces.items():
        yield f"namespace {name}", of(namespace)


def of(namespace: Kubectl) -> str:
    """The jobs, the pods, the events and the ends of all logs; never raises."""
    answers = [f"$ kubectl {' '.join(words)}\n{_ask(namespace, *words)}" for words in _QUESTIONS]
    logs = [f"--- log of {pod} ---\n{_log(namespace, pod)}" for pod in _pods(namespace)]
    return "\n".join([*answers, *logs])


def _pods(namespace: Kubectl) -> list[str]:
    names = _ask(namespace, "get", "pods", "-o", "name").split()
    return [name for name in names if name.startswith("pod/")][:_MOST_PODS]


def _log(namespace: Kubectl, pod: str) -> str:
    lines = f"--tail={_LOG_LINES}"
    # A container that died has told why in its former incarnation.
    former = _ask(namespace, "logs", pod, lines, "--previous", "--all-containers")
    return f"{former}\n{_ask(namespace, 'logs', pod, lines, '--all-containers')}"


def _ask(namespace: Kubectl, *words: str) -> str:
    try:
        answer = namespace.run(*words, "--request-timeout=10s", limit=_PATIENCE)
    except CommandFailed as error:
        # Often there is no former incarnation, and sometimes no API server.
        return str(error).rpartition(":\n")[2]
    return answer[-_MOST_CHARACTERS:]
