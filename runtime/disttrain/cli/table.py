"""The one table of what is imported by its name, when it is needed. Everything else is at the top.

By it `disttrain --help` takes a tenth of a second, Ctrl-C has a meaning before the commands are
there, and the processes of a job begin to start before the launcher has all that it needs. Who has
no cluster needs no library for one.
"""

import importlib
from typing import Any

COMMANDS = (
    ("run", "run:run", "Train a job with processes of this machine and show how it goes."),
    (
        "resume",
        "resume:resume",
        "Go on with the run in the folder DIR from its newest checkpoint, or with a suspended job.",
    ),
    (
        "invite",
        "joining:invite",
        "Print a token by which one more replica can join a run from another machine, once.",
    ),
    (
        "join",
        "joining:join",
        "Train as one more replica of a run on another machine, by a token of `disttrain invite`.",
    ),
    (
        "remove",
        "removal:remove",
        "Take a replica that has joined away from a run, for good.",
    ),
    (
        "status",
        "status:status",
        "Show how the run in DIR is, and in one sentence what limits its speed.",
    ),
    ("export", "checkpoints:export", "Write the model of a checkpoint as one safetensors file."),
    (
        "inspect",
        "checkpoints:inspect",
        "Show a checkpoint: its job, parts, files, tensors and optimizer state.",
    ),
    (
        "audit",
        "recorded_runs:audit",
        "Check the promises of the design from a run's own logs, and say what held.",
    ),
    (
        "replay",
        "recorded_runs:replay",
        "Reproduce an asynchronous run bit for bit, and say what asynchrony did.",
    ),
    (
        "timeline",
        "timeline:show",
        "Show when each gradient was computed and applied, and so how stale it was.",
    ),
    (
        "simulate",
        "simulate:simulate",
        "Train jobs in virtual time with several numbers of replicas, and say which to take.",
    ),
    (
        "plan",
        "plan:plan",
        "Say what a model would gain by being divided over several processes.",
    ),
    (
        "evaluate",
        "checkpoint_evaluation:evaluate",
        "Evaluate a checkpoint's parameters with the task of its job, on the test split.",
    ),
    (
        "validate",
        "manifests:validate",
        "Check manifests and print everything that is wrong with them.",
    ),
    ("schema", "manifests:schema", "Print the JSON schema of manifests."),
    (
        "submit",
        "submit:submit",
        "Run a job on the cluster of the kubeconfig's context, with the code of a folder here.",
    ),
    (
        "list",
        "cluster_show:list_jobs",
        "List the jobs of a namespace with the columns of `kubectl get disttrainjobs`.",
    ),
    (
        "get",
        "cluster_job:get",
        "Show how a job is and why: conditions, progress, shards, replicas, failures, checkpoint.",
    ),
    (
        "logs",
        "logs:logs",
        "Print the logs of a job: of its coordinator, its shards and its replicas, "
        "or some of them.",
    ),
    (
        "events",
        "cluster_show:events",
        "Show the events of a job, of its pods and of what makes them, the latest last.",
    ),
    (
        "top",
        "cluster_job:top",
        "Show per pod samples per second, staleness of gradients, processor time and memory.",
    ),
    (
        "scale",
        "cluster_change:scale",
        "Change the number of replicas of jobs while they train; no sample is lost or repeated.",
    ),
    (
        "suspend",
        "cluster_change:suspend",
        "Stop all processes of jobs after a checkpoint; "
        "`disttrain resume NAME` goes on from there.",
    ),
    (
        "delete",
        "cluster_change:delete",
        "Delete jobs with everything that belongs to them but the volume with their checkpoints.",
    ),
)
"""Name, module and function below `disttrain.cli`, and the first sentence of its help."""

LATER = {
    "call": "cli.app:call",
    "check a task's data": "replica.prepared:check_data",
    "complete": "cli.app:complete",
    "display on a terminal": "cli.display:LiveDisplay",
    "follow a job": "cli.cluster_live:follow",
    "issue credentials": "job.certificates:issue",
    "newest checkpoint": "cli.checkpoint_folder:newest",
    "open a cluster": "cluster.kubernetes_api:open_api",
    "open a link": "launcher.coordinator_link:open_link",
    "join a run": "launcher.joining:apply",
    "require a divisible model": "cli.divisible:require",
    "say what is wrong": "job.validation:first_message",
    "stay in a run": "launcher.joining:stay",
    "take joiners in": "launcher.enrolment:Office",
    "use of resources": "cluster.usage:measure",
    "why a model cannot be divided": "replica.division:refusal",
}
"""Module and object below `disttrain` of what only some commands need, or need late."""


def command(name: str) -> Any:
    """The function of a command."""
    (place,) = (place for known, place, _ in COMMANDS if known == name)
    return _load(f"cli.{place}")


def later(what: str) -> Any:
    """What `LATER` names. Whoever asks states its type."""
    return _load(LATER[what])


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"disttrain.{module}"), name)
