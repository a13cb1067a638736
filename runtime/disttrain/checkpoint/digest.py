"""The hash of files: xxh3_128, which costs less than reading them.

It finds damage, not malice: whoever can change a file can change the manifest beside it.
"""

import xxhash

PATTERN = r"^xxh3_128:[0-9a-f]{32}$"
"""Hashes carry the name of their algorithm, so that another one can follow."""


class Digest:
    """A hash that grows with the content."""

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_128()

    def update(self, content: bytes | memoryview) -> None:
        self._hash.update(content)

    def text(self) -> str:
        return f"xxh3_128:{self._hash.hexdigest()}"


def of(content: bytes | memoryview) -> str:
    digest = Digest()
    digest.update(content)
    return digest.text()
