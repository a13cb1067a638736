"""Submitting a job, with its code when that lies in a folder here."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from disttrain.cluster import code_folder, errors, kubectl_text, manifests, resources
from disttrain.cluster.code_folder import Code
from disttrain.cluster.interface import Object
from disttrain.cluster.jobs import FIELD_MANAGER, Jobs
from disttrain.cluster.manifests import JobRequest
from disttrain.cluster.resources import CONFIG_MAPS, JOBS
from disttrain.errors import DistTrainError


class DryRun(StrEnum):
    """How much of it is only tried."""

    NONE = "none"
    """Nothing: the job is made."""
    CLIENT = "client"
    """Everything: what would be sent is shown, and no API server is asked."""
    SERVER = "server"
    """The API server checks the job, and nothing is made."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """What was made."""

    job: Object
    notes: tuple[str, ...]
    """One line for each other thing that was done or left out."""


def code_name(request: JobRequest, code: Code | None) -> str | None:
    """Name of the ConfigMap of a job's code; None when its image has the code.

    Code that is packed gets a new name each time, so that no other job ever uses or changes it.
    """
    if code is None:
        return request.source
    return f"{request.source or f'{request.name}-code'}-{manifests.random_suffix()}"


def read_code(request: JobRequest, folder: Path | None) -> Code | None:
    """The code of a folder, if one is given. Raises WrongInput for what cannot be packed."""
    if folder is None:
        return None
    code = code_folder.read(folder)
    module = request.job.spec.task.module.partition(".")[0]
    if f"{module}.py" not in code.files:
        found = ", ".join(sorted(name for name in code.files if name.endswith(".py"))) or "none"
        raise errors.WrongInput(
            f"--code {folder} has no {module}.py, which spec.task.entrypoint "
            f"'{request.job.spec.task.entrypoint}' names; Python files there: {found}"
        )
    return code


def submit(
    jobs: Jobs, request: JobRequest, code: Code | None, *, dry_run: bool = False
) -> Submitted:
    """Make the job, then a ConfigMap of its code; with `dry_run` the API server only checks.

    Raises WrongInput, AlreadyThere, Forbidden and what else the API server refuses.
    """
    name = code_name(request, code)
    manifest = request.manifest(jobs.namespace, name)
    with _explained(jobs, request):
        # Whatever is wrong shows here, before there is a job.
        tried = jobs.create(manifest, dry_run=True)
    if code is None or name is None:
        _require_source(jobs, name)
        return Submitted(tried if dry_run else jobs.create(manifest), ())
    created = f"configmap/{name} created"
    if dry_run:
        return Submitted(tried, (*_left_out(code), f"{created} (server dry run)"))
    config_map = code_folder.config_map(name, code.files)
    query = {"fieldManager": FIELD_MANAGER}
    with _taken_back(jobs, request.name, name):
        with _explained(jobs, request):
            made = jobs.create(manifest)
        # Never without its owner: nobody would find and delete it. Pods wait for it.
        config_map["metadata"]["ownerReferences"] = [_owner(made)]
        jobs.api.call(resources.create(CONFIG_MAPS, jobs.namespace, config_map, query))
    return Submitted(made, (*_left_out(code), created))


@contextmanager
def _taken_back(jobs: Jobs, name: str, code: str) -> Iterator[None]:
    """Leave no job whose pods would wait for code that does not come, Ctrl-C included.

    The name of its code tells whether a job that an API server did not confirm was made.
    """
    try:
        yield
    except BaseException:
        # Why it did not work is what counts.
        with suppress(DistTrainError):
            found = jobs.api.call(resources.get(JOBS, jobs.namespace, name))
            source = found["spec"]["task"].get("source") or {}
            if source.get("configMap") == code:
                jobs.delete(name, found["metadata"]["uid"])
        raise


def _owner(job: Object) -> Object:
    """What a ConfigMap says of its job, so that it is deleted with it."""
    metadata = {name: job["metadata"][name] for name in ("name", "uid")}
    return {"apiVersion": job["apiVersion"], "kind": job["kind"], **metadata}


def _require_source(jobs: Jobs, name: str | None) -> None:
    """Raise WrongInput if the ConfigMap that a job names is not there: its pods would wait."""
    if name is None:
        return
    try:
        jobs.api.call(resources.get(CONFIG_MAPS, jobs.namespace, name))
    except errors.NotFound as error:
        raise errors.WrongInput(
            f"spec.task.source.configMap: there is no configmap {name} in namespace "
            f"{jobs.namespace}; --code FOLDER makes it from the files of a folder"
        ) from error
    except errors.Forbidden:
        # Whoever may submit jobs need not be allowed to read ConfigMaps.
        return


@contextmanager
def _explained(jobs: Jobs, request: JobRequest) -> Iterator[None]:
    try:
        yield
    except errors.AlreadyThere as error:
        raise errors.AlreadyThere(_taken(jobs.get(request.name))) from error


def _taken(job: Object) -> str:
    metadata = job["metadata"]
    phase = (job.get("status") or {}).get("phase") or "new"
    age = kubectl_text.age(metadata.get("creationTimestamp"), kubectl_text.now())
    name = metadata["name"]
    return (
        f"job {name} is in namespace {metadata['namespace']} already ({phase}, {age} old); "
        f"delete it (disttrain delete {name}), choose another name "
        f"(--set metadata.name={name}-2), or write metadata.generateName: {name}- instead"
    )


def _left_out(code: Code) -> list[str]:
    if not code.folders:
        return []
    return [f"not packed, because a ConfigMap has no folders: {', '.join(code.folders)}"]
