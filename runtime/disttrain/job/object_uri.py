"""Uris of places in object stores, as fsspec knows them. Pure."""


def is_one(text: str) -> bool:
    """Whether a text names a place in an object store, and no file."""
    scheme, separator, _ = text.partition("://")
    return bool(separator) and scheme != "file"


def of_job(uri: str, name: str, uid: str) -> str:
    """The place of one job below a uri that many jobs may have."""
    return f"{uri.rstrip('/')}/{name}-{uid}"
