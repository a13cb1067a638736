"""The one door to the Kubernetes library: credentials, requests, long answers, refusals.

Its generated classes are not used: what is sent and shown are plain objects.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from disttrain.cluster import errors
from disttrain.cluster.interface import Object, Request, Target, Verb
from disttrain.cluster.resources import JOBS
from disttrain.errors import DistTrainError
from disttrain.job import document

try:
    import urllib3
    from kubernetes import client, config
    from urllib3.exceptions import HTTPError
except ModuleNotFoundError as error:
    # An extra: who has no cluster does not need it, and `disttrain.Client` is there all the same.
    _MISSING = error.name
else:
    _MISSING = None

SECONDS: Final = 30.0
"""For an answer, after which the API server counts as away."""
CONNECT_SECONDS: Final = 10.0
QUIET_SECONDS: Final = 3600.0
"""Longest silence in a long answer; a log may have nothing to say for long."""

INSTALL: Final = (
    "helm install disttrain charts/disttrain-operator --namespace disttrain-system "
    "--create-namespace"
)
_KINDS: Final[dict[int, type[errors.ClusterError]]] = {404: errors.NotFound, 409: errors.Conflict}

NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class _Answer(Protocol):
    """What the library's answers have that is used here."""

    status: int
    response: urllib3.BaseHTTPResponse

    def read(self) -> bytes: ...


class KubernetesApi:
    """An API server, with a person's or a pod's credentials."""

    def __init__(self, configuration: client.Configuration, namespace: str) -> None:
        self._client = client.ApiClient(configuration)
        self._server = str(configuration.host)
        self._namespace = namespace

    @property
    def namespace(self) -> str:
        return self._namespace

    def call(self, request: Request) -> Object:
        body = self.text(request)
        found = _object(body)
        if found is None:
            # A proxy's page of login or of apology, for example.
            raise errors.Unreachable(
                f"{self._server} does not answer as an API server does: expected a JSON object, "
                f"got {body[:100]!r}; "
                "see what the context's server is (`kubectl config view --minify`)"
            )
        return found

    def text(self, request: Request) -> str:
        with self._translated():
            return _checked(self._send(request, SECONDS), request)

    @contextmanager
    def lines(self, request: Request) -> Iterator[Iterator[str]]:
        """Open a long answer and give its lines as they come. Raises ClusterError, Unreachable."""
        with self._translated():
            answer = self._send(request, QUIET_SECONDS)
            if answer.status >= 400:
                _checked(answer, request)
            try:
                yield _lines(answer.response)
            finally:
                answer.response.close()
                answer.response.release_conn()

    def _send(self, request: Request, seconds: float) -> _Answer:
        headers = {"Accept": request.accept}
        if request.body is not None:
            merging = request.verb is Verb.PATCH
            headers["Content-Type"] = f"application/{'merge-patch+' if merging else ''}json"
        sent = self._client.param_serialize(
            request.verb.method,
            request.path,
            query_params=list(request.query.items()),
            header_params=headers,
            auth_settings=["BearerToken"],
        )
        method, url, headers, *_ = sent
        timeout = (CONNECT_SECONDS, seconds)
        answer: _Answer = self._client.call_api(
            method, url, headers, request.body, _request_timeout=timeout
        )
        return answer

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (HTTPError, client.ApiException) as error:
            reason = getattr(error, "reason", None) or error
            raise errors.Unreachable(
                f"the API server {self._server} does not answer: {reason}"
            ) from error
        except config.ConfigException as error:
            # A plugin that is asked for a new token, long after the kubeconfig was read.
            raise errors.NoAccess(
                f"no credentials for the API server {self._server}: {error}; log in again"
            ) from error


def open_api(target: Target) -> KubernetesApi:
    """Read the kubeconfig, or a pod's own account; nothing is asked of the API server yet.

    Raises LibraryMissing or NoAccess.
    """
    if _MISSING is not None:
        raise errors.LibraryMissing(
            f"jobs of a cluster need the Kubernetes library, and {_MISSING} is not installed: "
            "pip install kubernetes, or install disttrain with its extra 'cluster'"
        )
    configuration = client.Configuration()
    configuration.retries = False
    try:
        namespace = _load(target, configuration)
    except Exception as error:
        # Whatever is wrong with the file: its parsers' errors come through as they are.
        raise _no_access(target, error) from error
    return KubernetesApi(configuration, target.namespace or namespace)


def _load(target: Target, configuration: client.Configuration) -> str:
    files = _files(target)
    there = any(Path(file).expanduser().exists() for file in files.split(os.pathsep))
    # As in kubectl, a kubeconfig comes before the account of the pod that this may run in.
    if not there and target.context is None and NAMESPACE_FILE.exists():
        config.load_incluster_config(client_configuration=configuration)
        return NAMESPACE_FILE.read_text().strip()
    chosen = target.context or _current_context(files)
    config.load_kube_config(files, chosen, configuration)
    contexts, current = config.list_kube_config_contexts(files)
    chosen = chosen or current["name"]
    found = next(each for each in contexts if each["name"] == chosen)
    return str(found["context"].get("namespace") or "default")


def _current_context(files: str) -> str | None:
    """The first one that a file names, as kubectl takes it; the library takes the last one."""
    for file in files.split(os.pathsep):
        path = Path(file).expanduser()
        content = document.read(path.read_text()) if path.is_file() else []
        value = content[0].value if content else None
        found = value.get("current-context") if isinstance(value, dict) else None
        if found:
            return str(found)
    return None


def _files(target: Target) -> str:
    if target.kubeconfig is not None:
        return str(target.kubeconfig)
    return os.environ.get("KUBECONFIG") or "~/.kube/config"


def _no_access(target: Target, error: Exception) -> errors.NoAccess:
    named = _files(target)
    return errors.NoAccess(
        f"no access to a cluster by the kubeconfig {named}"
        + (f", context {target.context}" if target.context else "")
        + f": {error}; choose one with --kubeconfig and --context, or set KUBECONFIG "
        "(`kubectl config get-contexts` lists them)"
    )


def _checked(answer: _Answer, request: Request) -> str:
    body = answer.read().decode(errors="replace")
    if answer.status < 400:
        return body
    said = _object(body) or {"message": body.strip()[:500]}
    raise explain(answer.status, said, request)


def _object(body: str) -> Object | None:
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[str]:
    rest = b""
    for chunk in response.stream(amt=None, decode_content=True):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)
    if rest:
        yield rest.decode(errors="replace")


def explain(code: int, answer: Object, request: Request) -> DistTrainError:
    """The error for an answer with an HTTP code of 400 or more; `answer` is its Status, or {}."""
    message = str(answer.get("message") or f"HTTP status {code}")
    if code >= 500 or code == 429:
        return errors.Unreachable(f"the API server is not able to answer now: {message}; try again")
    if code in {400, 422}:
        return errors.WrongInput(_causes(answer) or message)
    if code in {401, 403}:
        return _not_allowed(code, message, request)
    return _about_the_object(code, answer, message, request)


def _not_allowed(code: int, message: str, request: Request) -> errors.ClusterError:
    if code == 403:
        grant = f"whoever administers the namespace can grant the verb '{request.verb}' on it"
        return errors.Forbidden(f"{message}; {grant}")
    return errors.NoAccess(
        f"the API server does not accept the credentials of this context ({message}); "
        "log in again, or choose another one with --context"
    )


def _about_the_object(
    code: int, answer: Object, message: str, request: Request
) -> errors.ClusterError:
    # About an object that is not there, the answer names it.
    is_named = bool((answer.get("details") or {}).get("name"))
    if code == 404 and request.path.startswith(JOBS.root) and not is_named:
        return errors.NotInstalled(
            f"the cluster has no DistTrainJobs; install the operator, which brings them: {INSTALL}"
        )
    if code == 409 and answer.get("reason") == "AlreadyExists":
        return errors.AlreadyThere(message)
    return _KINDS.get(code, errors.ClusterError)(message)


def _causes(answer: Object) -> str:
    causes = (answer.get("details") or {}).get("causes") or []
    lines = (_cause(each) for each in causes)
    return "\n".join(dict.fromkeys(line for line in lines if line))


def _cause(cause: Object) -> str:
    field, message = str(cause.get("field") or ""), str(cause.get("message") or "")
    return f"{field}: {message}" if field and field != "<nil>" else message
