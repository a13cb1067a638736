"""Uris of places in object stores, as fsspec knows them. Pure."""

from typing import Final
from urllib.parse import unquote, urlsplit

ON_DISK: Final = frozenset({"file", "local", "asynclocal"})
"""Schemes of places on the disk of one machine."""
NO_STORES: Final = frozenset(
    {
        *("memory", "data", "generic", "reference"),
        *("dir", "async_wrapper", "asyncwrapper"),
        *("cached", "blockcache", "filecache", "simplecache"),
        *("zip", "tar", "libarchive"),
    }
)
"""Schemes of fsspec's that mean something within one process, or in another uri."""
OPENED: Final = frozenset(
    {
        *("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"),
        *(*ON_DISK, "memory"),
    }
)
"""Schemes that are opened without being asked for: of stores that keep what was promised of them,
and that no uri leads from to any other machine."""
OTHERS_VARIABLE: Final = "DISTTRAIN_OBJECT_STORES"
"""Environment variable with further schemes, separated by commas."""


def is_one(text: str) -> bool:
    return "://" in text and scheme(text) != "file"


def on_disk(text: str) -> str:
    """The path that a path or a file:// uri means."""
    return unquote(urlsplit(text).path) if text.startswith("file://") else text


def scheme(text: str) -> str:
    """What is before `://`; empty without it."""
    found, separator, _ = text.partition("://")
    return found if separator else ""


def of_job(uri: str, name: str, uid: str) -> str:
    return f"{uri.rstrip('/')}/{name}-{uid}"
