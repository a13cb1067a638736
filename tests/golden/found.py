"""What the product finds in the files of a run: recorded beside golden files, and asked again."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from disttrain.audit import audit, reading
from disttrain.checkpoint import digest, model_map, stores
from disttrain.checkpoint.manifest import Manifest
from disttrain.checkpoint.stores import Store
from disttrain.cli import checkpoints
from disttrain.coordinator.journal import journals, state
from disttrain.holder.restoring import Wanted
from disttrain.job import manifest_file
from disttrain.job.location import Location
from disttrain.job.spec import DistTrainJob
from disttrain.parameter_server import restoring, strategies
from disttrain.parameter_server.acknowledged import AcknowledgedFile
from disttrain.parameter_server.restoring import RestoredShard
from disttrain.state.placement import Placement, place
from disttrain.state.share import Share

FOUND = "found.json"
JOB = "job.yaml"
CHECKPOINTS = "checkpoints"
OBJECTS = "objects"
"""In place of the folder of checkpoints: a place in an object store, on this disk."""

Found = dict[str, Any]


def of_run(folder: Path, copies: Path) -> Found:
    """Everything that there is to find in a golden run; `copies`: an empty folder to work in."""
    job = manifest_file.load_job(folder / JOB)
    location = location_of(folder, copies / "read")
    found = {
        "journal": _journal(location),
        "checkpoints": _checkpoints(location),
        "restored": _restored(location, job),
    }
    if (folder / "ledger").is_dir():
        found |= {"audit": _audit(folder), "acknowledged": _acknowledged(folder, copies)}
    return found


def location_of(folder: Path, copies: Path) -> Location:
    """Where a golden run has its checkpoints and its journal."""
    if (folder / OBJECTS).is_dir():
        return Location(copies, f"local://{(folder / OBJECTS).absolute()}")
    return Location(folder / CHECKPOINTS)


def _journal(location: Location) -> Found:
    replayed = journals.replay(location)
    assert replayed is not None
    return {
        "decisions": replayed.decisions,
        "state": json.loads(state.to_json(replayed.state)),
    }


def _checkpoints(location: Location) -> Found:
    """What the commands say of each, and the model that `disttrain export` makes of it."""
    store = stores.open_store(location)
    return {
        str(one.manifest.number): _commands(store.place(one.manifest.number))
        for one in store.list()
    }


def _commands(place: str) -> Found:
    inspected = json.loads(checkpoints.inspected(place, as_json=True))
    del inspected["path"]
    with TemporaryDirectory() as folder:
        out = Path(folder) / "model.safetensors"
        checkpoints.write_model(place, out)
        return {"inspect": inspected, "export": digest.of(out.read_bytes())}


def _restored(location: Location, job: DistTrainJob) -> Found:
    """The newest checkpoint as shards take it: as many as wrote it, and one alone."""
    store = stores.open_store(location)
    newest = store.latest()
    found: Found = {}
    if newest is None:
        return found
    for shards in (len(newest.manifest.holders), 1):
        for shard in range(shards):
            share = Share(_placement(newest.manifest, shards), shard, 1 << 12)
            restored = restoring.restore([newest], _wanted(job, share, store))
            assert restored is not None
            found[f"{shard} of {shards}"] = dict(_of_shard(restored))
    return found


def _placement(manifest: Manifest, holders: int) -> Placement:
    """As the coordinator of a job that goes on from there makes it."""
    kept = [vector.name for vector in manifest.placement.vectors if not vector.is_of_a_model]
    return place(model_map.layout(manifest), holders, kept)


def _wanted(job: DistTrainJob, share: Share, store: Store) -> Wanted:
    return Wanted(
        share=share,
        makers=strategies.makers(job.spec),
        tables=restoring.TABLES,
        bring=store.bring,
    )


def _of_shard(restored: RestoredShard) -> Iterator[tuple[str, Any]]:
    """Every value, the optimizer's too, by its hash; and what was delivered."""
    yield "checkpoint", restored.checkpoint
    yield "version", restored.version
    values = restored.values
    for vector in sorted(values.vectors):
        yield (
            str(vector) if vector.is_of_a_model else vector.name,
            digest.of(values.all_bytes(vector)),
        )
    for life, delivered in sorted(restored.delivered.items()):
        yield f"delivered of {life.sender}.{life.incarnation}", delivered._asdict()


def _audit(folder: Path) -> Found:
    findings = json.loads(audit.to_json(audit.audit(reading.read(folder))))
    return {each["promise"]: each["standing"] for each in findings["findings"]}


def _acknowledged(folder: Path, copies: Path) -> Found:
    found: Found = {}
    for file in sorted((folder / "ledger").glob("acknowledged-*.bin")):
        # Opened for writing, as a shard does.
        opened = AcknowledgedFile(Path(shutil.copy(file, copies)))
        counts = opened.counts()
        opened.close()
        found[file.name] = {
            f"{life.sender}.{life.incarnation}": asdict(count) for life, count in counts.items()
        }
    return found
