"""What a process begins with when it is not the first of its name."""

from pathlib import Path

from disttrain.checkpoint import names
from disttrain.job.location import Location


def latest_checkpoint(location: Location) -> Path | None:
    """The newest complete checkpoint there; None without one. Its hashes are not checked.

    The manifest is written last: a folder without it is no checkpoint.
    """
    folder = location.folder
    if location.uri:
        # Slow to import, and the launcher should start soon where it can.
        from disttrain.checkpoint import stores  # noqa: PLC0415

        store = stores.open_store(location)
        # Somebody may have looked at it on the way here.
        store.drop_copies()
        latest = store.latest()
        return None if latest is None else latest.path
    complete = (path for path in folder.glob("[0-9]*") if (path / names.MANIFEST).is_file())
    numbers = (names.number(path.name) for path in complete)
    newest = max((number for number in numbers if number is not None), default=None)
    return folder / names.folder(newest) if newest is not None else None
