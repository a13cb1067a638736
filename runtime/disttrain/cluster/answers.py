"""What an API server's refusal means, with what to do about it. Pure."""

from typing import Final

from disttrain.cluster.errors import (
    AlreadyThere,
    ClusterError,
    Conflict,
    Forbidden,
    NoAccess,
    NotFound,
    NotInstalled,
    Unreachable,
    WrongInput,
)
from disttrain.cluster.interface import Object, Request
from disttrain.cluster.resources import JOBS
from disttrain.errors import DistTrainError

INSTALL: Final = (
    "helm install disttrain charts/disttrain-operator --namespace disttrain-system "
    "--create-namespace"
)

_KINDS: Final[dict[int, type[ClusterError]]] = {404: NotFound, 409: Conflict}


def explain(code: int, answer: Object, request: Request) -> DistTrainError:
    """The error for an answer with an HTTP code of 400 or more; `answer` is its Status, or {}."""
    message = str(answer.get("message") or f"HTTP status {code}")
    if code >= 500 or code == 429:
        return Unreachable(f"the API server is not able to answer now: {message}; try again")
    if code in {400, 422}:
        return WrongInput(_causes(answer) or message)
    if code in {401, 403}:
        return _not_allowed(code, message, request)
    return _about_the_object(code, answer, message, request)


def _not_allowed(code: int, message: str, request: Request) -> ClusterError:
    if code == 403:
        grant = f"whoever administers the namespace can grant the verb '{request.verb}' on it"
        return Forbidden(f"{message}; {grant}")
    return NoAccess(
        f"the API server does not accept the credentials of this context ({message}); "
        "log in again, or choose another one with --context"
    )


def _about_the_object(code: int, answer: Object, message: str, request: Request) -> ClusterError:
    # About an object that is not there, the answer names it.
    is_named = bool((answer.get("details") or {}).get("name"))
    if code == 404 and request.path.startswith(JOBS.root) and not is_named:
        return NotInstalled(
            f"the cluster has no DistTrainJobs; install the operator, which brings them: {INSTALL}"
        )
    if code == 409 and answer.get("reason") == "AlreadyExists":
        return AlreadyThere(message)
    return _KINDS.get(code, ClusterError)(message)


def _causes(answer: Object) -> str:
    causes = (answer.get("details") or {}).get("causes") or []
    lines = (_cause(each) for each in causes)
    return "\n".join(dict.fromkeys(line for line in lines if line))


def _cause(cause: Object) -> str:
    field, message = str(cause.get("field") or ""), str(cause.get("message") or "")
    return f"{field}: {message}" if field and field != "<nil>" else message
