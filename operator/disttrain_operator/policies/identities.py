"""Who asks for a certificate, by the pod's token, and what it is given. Pure.

A token names a pod and its uid, and the API server says whether it is genuine and the pod is still
there. Whose the pod is follows from what the operator has seen: which workload of which job
controls it, under which name. The pod's labels and what it says of itself decide nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from disttrain.job import identity
from disttrain.job.identity import Identity
from disttrain.job.names import Role
from disttrain_operator import untrusted
from disttrain_operator.kinds import WORKLOADS
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import ChildRecord, PodRecord

_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"
_ACCOUNT: Final = "system:serviceaccount:"


class Application(NamedTuple):
    """What a pod says. Only its token is proven."""

    job: str
    """Name of the job, by which its pods are found."""
    instance: str
    request: str
    """In PEM; see `certificates`."""


class PodName(NamedTuple):
    """The pod that a token is bound to."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Denied:
    """Why nothing is signed."""

    status: HTTPStatus
    reason: str
    """A word for programs."""
    message: str


def application(content: object) -> Application | None:
    """What is asked for; None if it is not that."""
    given = content if isinstance(content, dict) else {}
    values = [given.get(name) for name in Application._fields]
    if not all(isinstance(each, str) and each for each in values):
        return None
    return Application(*map(str, values))


def pod_of(review: Mapping[str, Any], audience: str) -> PodName | Denied:
    """What a TokenReview says of a token."""
    status = untrusted.mapping(dict(review), "status")
    user = untrusted.mapping(status, "user")
    if status.get("authenticated") is not True:
        why = untrusted.text(status.get("error")) or "it is not valid"
        return _unauthenticated(f"the API server does not accept the token: {why}")
    if audience not in (status.get("audiences") or []):
        return _unauthenticated(f"the token is not for {audience}")
    account = str(user.get("username", ""))
    namespace = account.removeprefix(_ACCOUNT).partition(":")[0]
    name, uid = (_claim(user, key) for key in (_POD_NAME, _POD_UID))
    if not account.startswith(_ACCOUNT) or not all((namespace, name, uid)):
        return _unauthenticated("the token is bound to no pod")
    return PodName(namespace, name, uid)


def identity_of(pod: PodName, asked: Application, observed: Observed) -> Identity | Denied:
    """What a certificate of the pod says. `observed`: of the job that it names."""
    known, job = observed.pods.get(pod.name), observed.job
    if known is None or known.uid != pod.uid or job is None:
        message = f"pod {pod.name} was not seen yet among those of job {asked.job}: ask again"
        return Denied(HTTPStatus.SERVICE_UNAVAILABLE, "UnknownPod", message)
    if not known.controller:
        return _forbidden("NoPodOfAJob", f"pod {pod.name} is none that job {asked.job} has made")
    workloads = observed.children_of(job, WORKLOADS)
    controller = next((each for each in workloads if each.uid == known.controller), None)
    if controller is None:
        message = f"what controls pod {pod.name} was not seen yet in job {asked.job}: ask again"
        return Denied(HTTPStatus.SERVICE_UNAVAILABLE, "UnknownPod", message)
    found = _member(Identity(job.uid, "", instance=asked.instance), controller, known)
    if found is None:
        return _forbidden("NoPodOfAJob", f"{pod.name} is no pod of {controller.name}")
    if not asked.instance.startswith(f"{pod.uid}.") or not identity.is_instance(asked.instance):
        return _forbidden("ForeignInstance", f"pod {pod.name} asked for the name of another pod")
    return found


def _member(whole: Identity, controller: ChildRecord, pod: PodRecord) -> Identity | None:
    """By kind and name of what controls the pod: names never change."""
    workload = controller.workload
    if workload is None or controller.name != workload.name(pod.job.name):
        return None
    known = whole._replace(role=workload.role.value)
    if workload.role is Role.COORDINATOR:
        return known._replace(group=0)
    ordinal = _number(pod.name, controller.name)
    if workload.role is Role.SHARD:
        return None if ordinal is None else known._replace(group=ordinal)
    if workload.group is None:
        # The coordinator names it, and knows by the place which pod's next incarnation it is.
        return known._replace(place=pod.name)
    return None if ordinal is None else known._replace(group=workload.group, partition=ordinal)


def _number(name: str, of: str) -> int | None:
    """The number that a controller has put behind a name."""
    text = name.removeprefix(f"{of}-")
    return int(text) if text != name and text.isascii() and text.isdecimal() else None


def _claim(user: Mapping[str, Any], key: str) -> str:
    found = untrusted.mapping(dict(user), "extra").get(key)
    return str(found[0]) if isinstance(found, list) and len(found) == 1 else ""


def _unauthenticated(message: str) -> Denied:
    return Denied(HTTPStatus.UNAUTHORIZED, "BadToken", message)


def _forbidden(reason: str, message: str) -> Denied:
    return Denied(HTTPStatus.FORBIDDEN, reason, message)
