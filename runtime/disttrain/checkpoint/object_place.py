"""What a text in an order or on a command line says of a job's place in an object store. Pure."""

from dataclasses import dataclass

from disttrain.checkpoint import object_names


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A job's place, and one of its checkpoints."""

    uri: str
    number: int | None
    """None: the newest."""


def parse(text: str) -> ObjectPlace:
    """The job and the checkpoint that `text` means: URI, or URI/checkpoints/NUMBER.json."""
    folder, _, file = text.rstrip("/").rpartition("/")
    number = object_names.number(f"{object_names.CHECKPOINTS}/{file}")
    if number is None or not folder.endswith(f"/{object_names.CHECKPOINTS}"):
        return ObjectPlace(text.rstrip("/"), None)
    return ObjectPlace(folder.removesuffix(f"/{object_names.CHECKPOINTS}"), number)
