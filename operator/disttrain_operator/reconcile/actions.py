"""What a plan can ask for, and what was learned by doing it. Values only; `act` does it."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.children import Child, ChildKey
from disttrain_operator.observed.records import ChildRecord, Outcome, PodRecord
from disttrain_operator.policies.missing_pods import Lack
from disttrain_operator.policies.problem import Problem


@dataclass(frozen=True, slots=True)
class Annotate:
    """Write an annotation on the job."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class CheckTemplates:
    """Ask the API server whether it would take the workloads; nothing is made."""

    children: tuple[Child, ...]


@dataclass(frozen=True, slots=True)
class RestartAll:
    """End all pods of the job, by a rule of its failure policy."""

    pods: tuple[PodRecord, ...]
    because: str


@dataclass(frozen=True, slots=True)
class CreateKeys:
    """Make the Secret, if it is not there, and end the pods that hold the keys of one before."""

    launch: str
    """The manifest as the processes read it."""
    pods: tuple[PodRecord, ...] = ()
    authority: str = ""
    """What to write at the job of the authority that they then believe; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Create:
    """Make a child that was not seen."""

    child: Child


@dataclass(frozen=True, slots=True)
class Renew:
    """Delete a child that has not changed since it was seen, and make it again."""

    child: Child
    seen: ChildRecord
    because: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete what keeps a replica of several processes that the job shall have no longer."""

    seen: ChildRecord


@dataclass(frozen=True, slots=True)
class Rescale:
    """Change how much of a workload runs."""

    child: ChildKey
    uid: str
    wanted: int
    """The pods that it shall have."""
    because: str = ""
    outcome: Outcome | None = None
    """Why it is for good; the workload keeps it."""
    is_recorded: bool = False
    """Whether an Event is made of it: where a job ends or is suspended, another one tells."""

    @property
    def spec(self) -> dict[str, Any]:
        """The fields of the workload's spec that say how many pods there shall be."""
        if self.child[0] is not Kind.Job:
            return {"replicas": self.wanted}
        # No pods at once is another way to stop it, for who does so by hand.
        return {"suspend": False, "parallelism": 1} if self.wanted else {"suspend": True}


@dataclass(frozen=True, slots=True)
class RemovePod:
    """Delete a pod without waiting for its node, if that is lost."""

    pod: PodRecord
    because: str


@dataclass(frozen=True, slots=True)
class ReadEvents:
    """Read the Events of workloads that have too few pods."""

    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the job and with it everything but its volume."""


Action = (
    Annotate
    | CheckTemplates
    | CreateKeys
    | Create
    | Renew
    | Remove
    | Rescale
    | RestartAll
    | RemovePod
    | ReadEvents
    | DeleteJob
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What to do about a job now, what to say of it, and when to look again."""

    actions: tuple[Action, ...] = ()
    """In this order; those that depend on no other are done at once with their neighbours."""
    status: dict[str, Any] | None = None
    """The operator's fields of the status. None: the job is not to be touched."""
    wake_at: datetime | None = None
    """When something is due although nothing happens until then."""
    outcome: Outcome | None = None
    """How the job ended, if it has."""
    warnings: tuple[str, ...] = ()
    """What the user should know of the manifest."""


@dataclass(slots=True)
class Knowledge:
    """What the operator knows of a job besides what it sees, and may lose at any time."""

    uid: str
    signs_by: str = ""
    """Fingerprint of the authority by which certificates of the job are signed."""
    generation: int = 0
    """The generation that `refused` and `checked` are about."""
    refused: Problem | None = None
    """What the API server said against the templates."""
    checked: bool = False
    """Whether the API server would take the templates."""
    made: bool = False
    """Whether all children were there once."""
    keys_checked: datetime | None = None
    """When it was last seen that the keys are there."""
    answered: dict[str, datetime] = field(default_factory=dict)
    """When nodes, on which a pod did not end in its time, were found to answer."""
    recorded: set[str] = field(default_factory=set)
    """Names of the Events that tell of a status which is not yet written."""
    lacks: dict[str, Lack] = field(default_factory=dict)
    """Workloads that have too few pods, by their uids."""
    in_the_way: tuple[ChildRecord, ...] = ()
    """Objects of others, found where a child was to be made."""
    error: Problem | None = None
    """What fails repeatedly."""

    reported: tuple[dict[str, Any], dict[str, Any]] | None = None
    """The status that was written last, and what the API server made of it, if not the same."""
    reported_at: datetime | None = None
    """When that was."""

    def has_reported(self, status: dict[str, Any], seen: dict[str, Any]) -> bool:
        """Whether writing this status would change nothing of the one that was seen."""
        # The API server may leave out what it does not know: that must not be written for ever.
        return seen == status or self.reported == (status, seen)

    def begin(self, generation: int) -> None:
        if self.generation != generation:
            self.generation, self.refused, self.checked = generation, None, False
