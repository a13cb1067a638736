"""What a process finds in its pod: ports, folders, files, environment variables.

The operator writes it into the pods and the process reads it; both take the words from here.
"""

from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final

CONTROL_PORT: Final = 7070
"""Where the coordinator listens."""
DATA_PORT: Final = 7071
"""Where a shard listens."""
METRICS_PORT: Final = 9090
"""Where every process serves /metrics, /healthz and /ready."""

CONTROL_PORT_NAME: Final = "control"
DATA_PORT_NAME: Final = "data"
METRICS_PORT_NAME: Final = "metrics"

READY_PATH: Final = "/ready"
"""Answers 200 when the process does its work: a shard serves, a replica has joined."""
HEALTH_PATH: Final = "/healthz"
"""Answers 200 while the process lives."""

TASK_FOLDER: Final = PurePosixPath("/task")
"""The user's code, where it comes from a ConfigMap."""
CHECKPOINTS_FOLDER: Final = PurePosixPath("/checkpoints")
"""The volume that all roles share."""
LAUNCH_FOLDER: Final = PurePosixPath("/etc/disttrain/launch")
TOKEN_FOLDER: Final = PurePosixPath("/var/run/secrets/disttrain")
"""The pod's token for the operator, which the kubelet renews."""
TOKEN_KEY: Final = "token"  # noqa: S105 - The name of its file.
TOKEN_AUDIENCE: Final = "disttrain.dev"  # noqa: S105 - For whom it is: nobody else takes it.
SIGNING_PATH: Final = "/certificates"
"""Where the operator signs."""
SHARED_MEMORY_FOLDER: Final = PurePosixPath("/dev/shm")  # noqa: S108 - The pod's own, in memory.
TEMPORARY_FOLDER: Final = PurePosixPath("/tmp")  # noqa: S108 - The pod's own, an emptyDir.

LAUNCH_KEY: Final = "job.json"
"""Key of the launch Secret: the whole manifest with the job's namespace and uid."""
LAUNCH_FILE: Final = LAUNCH_FOLDER / LAUNCH_KEY
TRUST_KEY: Final = "trust.json"
"""Key of the launch Secret: the certificate of the job's authority, and who signs by it."""
TRUST_FILE: Final = LAUNCH_FOLDER / TRUST_KEY
TOKEN_FILE: Final = TOKEN_FOLDER / TOKEN_KEY

TERMINATION_LOG: Final = PurePosixPath("/dev/termination-log")
"""Where a process writes how it ended."""


RESTART_CODE: Final = 75
"""Exit code of a process that ends so that a new life of it begins. Of several processes of a
replica all but the one that failed end with it."""


class Variable(StrEnum):
    """The environment variables that `python -m disttrain.launch.pod` reads."""

    ROLE = "DISTTRAIN_ROLE"
    """coordinator, shard or replica."""
    INDEX = "DISTTRAIN_INDEX"
    """Index of a shard, or of a replica of several processes. A replica of one has none: the
    coordinator names it when it joins."""
    PARTITION = "DISTTRAIN_PARTITION"
    """Which process of a replica of several it is, from 0; then its index is given, too. Missing:
    0."""
    RUN_FOLDER = "DISTTRAIN_RUN_FOLDER"
    """Where the run's files lie."""
    TASK_FOLDER = "DISTTRAIN_TASK_FOLDER"
    """Where the task's module is looked up first."""
    LAUNCH_FILE = "DISTTRAIN_LAUNCH_FILE"
    """The manifest."""
    CREDENTIALS_FILE = "DISTTRAIN_KEYS_FILE"
    """Of whom the process gets its certificate; or, of an older operator, the role's certificate
    and key. Not read with `encryption: none`.

    Its name is that of the keys of before: an image of another version refuses the file, where
    under another name it would find none and encrypt nothing."""
    TOKEN_FILE = "DISTTRAIN_TOKEN_FILE"  # noqa: S105 - A variable.
    """The pod's token, if not where the kubelet keeps it."""
    TERMINATION_LOG = "DISTTRAIN_TERMINATION_LOG"
    """Where the outcome is written."""
    COORDINATOR_ADDRESS = "DISTTRAIN_COORDINATOR_ADDRESS"
    """Where the coordinator is, if not at its host name in the cluster."""
    LISTEN_ADDRESS = "DISTTRAIN_LISTEN_ADDRESS"
    """Where this process listens, if not at its role's port."""
    ANNOUNCE_ADDRESS = "DISTTRAIN_ANNOUNCE_ADDRESS"
    """What this process tells others to connect to, if not its host name in the cluster."""
    METRICS_ADDRESS = "DISTTRAIN_METRICS_ADDRESS"
    """Where this process serves its metrics, if not at the metrics port."""
    POD_UID = "POD_UID"
    """Uid of the pod."""
    POD_NAME = "POD_NAME"
    """Name of the pod."""
    POD_NAMESPACE = "POD_NAMESPACE"
    """Namespace of the pod."""
    POD_IP = "POD_IP"
    """Address of the pod."""


def run_folder(job: str, uid: str) -> PurePosixPath:
    """The folder of one job: another job of the same name has another uid, so another folder."""
    return CHECKPOINTS_FOLDER / f"{job}-{uid}"
