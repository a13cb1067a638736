"""Which checkpoint a person means: its own folder, or the newest of the folder that holds it."""

from pathlib import Path

from disttrain.checkpoint import names
from disttrain.checkpoint.errors import NoCheckpoint
from disttrain.checkpoint.store import Store


def resolve(given: Path) -> Path:
    """The folder of one checkpoint; whether it is whole is not looked at. Raises NoCheckpoint."""
    if names.number(given.absolute().name) is not None or (given / names.MANIFEST).exists():
        return given.absolute()
    for folder in (given, given / "checkpoints"):
        newest = Store(folder).newest_folder()
        if newest is not None:
            return newest
    message = f"{given} holds no checkpoint; name a folder such as runs/digits/checkpoints/00000003"
    raise NoCheckpoint(message)
