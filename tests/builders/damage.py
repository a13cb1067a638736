"""Checkpoints that are not what they were."""

from pathlib import Path


def flip(checkpoint: Path) -> None:
    """Change one bit of the second shard's part."""
    file = checkpoint / "shard-00001.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def flip_newest(checkpoints: Path) -> None:
    """Change one bit of the newest one in the folder."""
    flip(sorted(checkpoints.glob("[0-9]*"))[-1])
