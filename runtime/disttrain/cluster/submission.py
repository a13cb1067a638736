"""Submitting a job, with its code when that lies in a folder here."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from disttrain.cluster import ages, code_folder, code_map, resources
from disttrain.cluster.code_folder import Code
from disttrain.cluster.code_map import Change
from disttrain.cluster.errors import (
    AlreadyThere,
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    WrongInput,
)
from disttrain.cluster.interface import Object
from disttrain.cluster.jobs import FIELD_MANAGER, Jobs
from disttrain.cluster.manifests import Wish
from disttrain.cluster.resources import CONFIG_MAPS
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


def code_name(wish: Wish, code: Code | None) -> str | None:
    """Name of the ConfigMap of a job's code; None when its image has the code."""
    return wish.source or (f"{wish.name}-code" if code is not None else None)


def read_code(wish: Wish, folder: Path | None) -> Code | None:
    """The code of a folder, if one is given. Raises WrongInput for what cannot be packed."""
    if folder is None:
        return None
    code = code_folder.read(folder)
    module = wish.module.partition(".")[0]
    if f"{module}.py" not in code.files:
        found = ", ".join(sorted(name for name in code.files if name.endswith(".py"))) or "none"
        message = (
            f"--code {folder} has no {module}.py, which spec.task.entrypoint "
            f"'{wish.job.spec.task.entrypoint}' names; Python files there: {found}"
        )
        raise WrongInput(message)
    return code


def submit(jobs: Jobs, wish: Wish, code: Code | None, *, dry_run: bool = False) -> Submitted:
    """Make the job, after its ConfigMap; with `dry_run` the API server only checks.

    Raises WrongInput, AlreadyThere, Conflict, Forbidden and what else the API server refuses.
    """
    name = code_name(wish, code)
    manifest = wish.manifest(jobs.namespace, name)
    with _explained(jobs, wish):
        # Whatever is wrong shows here, before there is a ConfigMap that nobody needs.
        tried = jobs.create(manifest, dry_run=True)
    if code is None or name is None:
        _require_source(jobs, name)
        return Submitted(tried if dry_run else jobs.create(manifest), ())
    config_map = code_map.config_map(name, code.files)
    found = _find(jobs, name)
    change = code_map.decide(config_map, found, jobs.all() if found else [])
    notes = (*_left_out(code), f"configmap/{name} {_word(change)}")
    if dry_run:
        return Submitted(tried, notes)
    stored = _store(jobs, config_map, found, change)
    with _explained(jobs, wish), _taken_back(jobs, stored, change):
        made = jobs.create(manifest)
    if code_map.is_ours(stored):
        _own(jobs, stored, made)
    return Submitted(made, notes)


def _find(jobs: Jobs, config_map: str) -> Object | None:
    try:
        return jobs.api.call(resources.get(CONFIG_MAPS, jobs.namespace, config_map))
    except NotFound:
        return None


def _store(jobs: Jobs, wanted: Object, found: Object | None, change: Change) -> Object:
    if found is not None and change is Change.KEEP:
        return found
    if found is not None:
        _delete(jobs, found["metadata"])
    return _create(jobs, wanted)


def _delete(jobs: Jobs, metadata: Object) -> None:
    """Delete a ConfigMap as it was when it was looked at; raises Conflict if it is not so now."""
    name, uid, version = (metadata[each] for each in ("name", "uid", "resourceVersion"))
    try:
        jobs.api.call(resources.delete(CONFIG_MAPS, jobs.namespace, name, uid, version))
    except Conflict as error:
        message = (
            f"configmap/{name} was changed just now, perhaps by a job that uses it; submit again"
        )
        raise Conflict(message) from error


def _create(jobs: Jobs, config_map: Object) -> Object:
    query = {"fieldManager": FIELD_MANAGER}
    return jobs.api.call(resources.create(CONFIG_MAPS, jobs.namespace, config_map, query))


@contextmanager
def _taken_back(jobs: Jobs, stored: Object, change: Change) -> Iterator[None]:
    """Leave no ConfigMap that was made for a job which is refused then: nobody would own it.

    After Unreachable the job may be there, and need it.
    """
    try:
        yield
    except ClusterError:
        if change is not Change.KEEP:
            # Why the job was refused is what counts.
            with suppress(DistTrainError):
                _delete(jobs, stored["metadata"])
        raise


def _own(jobs: Jobs, stored: Object, job: Object) -> None:
    name, found = stored["metadata"]["name"], stored
    while True:
        # A merge patch replaces the whole list of owners: only of that which was read.
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        body = {"metadata": {**code_map.owned(found, job)["metadata"], **version}}
        try:
            jobs.api.call(resources.patch(CONFIG_MAPS, jobs.namespace, name, body))
        except NotFound:
            # It went with its last owner, a job that was deleted just before this one came.
            _create(jobs, code_map.copied(stored, job))
        except Conflict:
            found = _found_again(jobs, stored)
            continue
        return


def _found_again(jobs: Jobs, stored: Object) -> Object:
    """A ConfigMap that somebody else changed. Raises Conflict if it has other files now."""
    name = stored["metadata"]["name"]
    found = _find(jobs, name) or stored
    if not code_map.same_content(stored, found):
        message = (
            f"somebody else wrote other code into configmap/{name} just now, and the job that was "
            f"made would run it; delete the job and submit it again with another "
            f"--set spec.task.source.configMap=NAME"
        )
        raise Conflict(message)
    return found


def _require_source(jobs: Jobs, name: str | None) -> None:
    """Raise WrongInput if the ConfigMap that a job names is not there: its pods would wait."""
    if name is None:
        return
    try:
        jobs.api.call(resources.get(CONFIG_MAPS, jobs.namespace, name))
    except NotFound as error:
        message = (
            f"spec.task.source.configMap: there is no configmap {name} in namespace "
            f"{jobs.namespace}; --code FOLDER makes it from the files of a folder"
        )
        raise WrongInput(message) from error
    except Forbidden:
        # Whoever may submit jobs need not be allowed to read ConfigMaps.
        return


@contextmanager
def _explained(jobs: Jobs, wish: Wish) -> Iterator[None]:
    try:
        yield
    except AlreadyThere as error:
        raise AlreadyThere(_taken(jobs.get(wish.name))) from error


def _taken(job: Object) -> str:
    metadata = job["metadata"]
    phase = (job.get("status") or {}).get("phase") or "new"
    age = ages.since(metadata.get("creationTimestamp"), ages.now())
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


def _word(change: Change) -> str:
    words = {Change.CREATE: "created", Change.KEEP: "unchanged", Change.REPLACE: "replaced"}
    return words[change]
