"""Who a certificate says its holder is, and for whom its holder may speak. Pure.

A URI among the certificate's names says it: disttrain://JOB_UID/ROLE/GROUP/PARTITION/INSTANCE.
GROUP is - where the coordinator chooses it. INSTANCE is what the instances of the process begin
with, in a cluster the pod's uid; - says nothing. Certificates of older versions say JOB_UID/ROLE
alone, for all processes of a role. A job's authority signs for no other job.

Where the only place of a process is known, a second URI says the same and then PLACE. Processes of
older versions pass over it and read the first one.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

_SCHEME = "disttrain://"
_UNKNOWN = "-"
LOOPS = "loop"
"""What the instances of training loops of the user's own begin with: on one machine they have one
certificate."""
JOINER = "joiner-"
"""What the instances and places of invited replicas begin with. A pod's uid never does."""

_INSTANCE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,126}[A-Za-z0-9])?")
_PLACE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""A pod's name."""


class Identity(NamedTuple):
    """A process of a job."""

    job_uid: str
    role: str
    """coordinator, shard, replica, or launcher."""
    group: int | None = None
    """Its index in the role; None: any, as the coordinator says."""
    partition: int = 0
    instance: str = ""
    """What the process's instances begin with; empty: any."""
    place: str = ""
    """The only place where it can be, its pod's name; empty: any."""

    @property
    def uris(self) -> tuple[str, ...]:
        """The names that its certificate has."""
        group = _UNKNOWN if self.group is None else self.group
        instance = self.instance or _UNKNOWN
        plain = f"{_SCHEME}{self.job_uid}/{self.role}/{group}/{self.partition}/{instance}"
        return (plain, f"{plain}/{self.place}") if self.place else (plain,)

    def __str__(self) -> str:
        """As people call it: replica-1, replica-1-2, replica of INSTANCE at PLACE."""
        return _name(self)


class Speaker(NamedTuple):
    """For whom somebody wants to speak."""

    role: str
    group: int | None
    """None: for whom the coordinator chooses."""
    partition: int = 0
    instance: str | None = None
    """None: not known."""
    place: str | None = None
    """Where it says that it is, which may be nowhere; None: it does not say now."""

    def __str__(self) -> str:
        return _name(self)


def mismatch(identity: Identity, speaker: Speaker) -> str:
    """Why the holder of a certificate may not speak for somebody; empty if it may."""
    fits = (
        identity.role == speaker.role
        and identity.group in {None, speaker.group}
        and identity.partition == speaker.partition
        and (speaker.instance is None or is_instance_of(identity, speaker.instance))
        and (speaker.place is None or identity.place in {"", speaker.place})
    )
    return "" if fits else f"the certificate of {identity} does not speak for {speaker}"


def is_instance_of(identity: Identity, instance: str) -> bool:
    """Whether an instance can be the identity's own."""
    own = identity.instance
    return not own or instance == own or instance.startswith(f"{own}.")


def joiner(job_uid: str, invitation: str) -> Identity:
    """Who was taken in by an invitation: its place is its own, wherever its machine is."""
    own = f"{JOINER}{invitation}"
    return Identity(job_uid, "replica", instance=own, place=own)


def is_joiner(instance: str) -> bool:
    """Whether somebody outside the job runs it, by an instance that its certificate proves."""
    return instance.startswith(JOINER)


def pod_of(instance: str) -> str:
    """The uid of an instance's pod; of an instance that is none of a pod's, the instance."""
    return instance.partition(".")[0]


def of_certificate(certificate: Mapping[str, object]) -> Identity | None:
    """What `ssl.SSLSocket.getpeercert` tells; None if it names no process of a job."""
    names = certificate.get("subjectAltName")
    uris = [name[1] for name in (names if isinstance(names, tuple) else ()) if name[0] == "URI"]
    found = [one for one in map(parse, uris) if one is not None]
    return next((one for one in found if one.place), found[0] if found else None)


def parse(uri: str) -> Identity | None:
    """None for what no authority of a job has signed."""
    if not uri.startswith(_SCHEME):
        return None
    job_uid, *rest = uri.removeprefix(_SCHEME).split("/")
    if not job_uid or not all(rest):
        return None
    match rest:
        case [role]:
            return Identity(job_uid, role)
        case [role, group, partition, instance]:
            return _whole(Identity(job_uid, role), group, partition, instance)
        case [role, group, partition, instance, place] if _PLACE.fullmatch(place):
            return _whole(Identity(job_uid, role, place=place), group, partition, instance)
    return None


def is_instance(text: str) -> bool:
    """Whether a text may stand in a URI as an instance."""
    return _INSTANCE.fullmatch(text) is not None


def _whole(start: Identity, group: str, partition: str, instance: str) -> Identity | None:
    numbers = [each for each in (group, partition) if each != _UNKNOWN]
    if partition == _UNKNOWN or not all(each.isascii() and each.isdecimal() for each in numbers):
        return None
    if instance != _UNKNOWN and not is_instance(instance):
        return None
    return start._replace(
        group=None if group == _UNKNOWN else int(group),
        partition=int(partition),
        instance="" if instance == _UNKNOWN else instance,
    )


def _name(of: Identity | Speaker) -> str:
    index = "" if of.group is None else f"-{of.group}"
    partition = f"-{of.partition}" if index and of.partition else ""
    whose = f" of {of.instance}" if of.instance else ""
    where = f" at {of.place}" if of.place else ""
    return f"{of.role}{index}{partition}{whose}{where}"
