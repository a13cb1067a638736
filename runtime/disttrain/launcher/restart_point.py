"""What a process begins with when it is not the first of its name."""

import dataclasses
from pathlib import Path

from disttrain.job.names import Role
from disttrain.launch.config import LaunchConfig

MANIFEST = "manifest.json"
"""The file that is written last: a checkpoint without it is none."""


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint in `folder`; None without one. Its hashes are not checked."""
    complete = (path for path in folder.glob("[0-9]*") if (path / MANIFEST).is_file())
    return max(complete, key=lambda path: int(path.name), default=None)


def config_after_restart(config: LaunchConfig) -> LaunchConfig:
    """The config of the next life: shards restore the newest checkpoint.

    The coordinator goes on from its journal, never again from the checkpoint of a resume.
    """
    if config.role is not Role.SHARD:
        return dataclasses.replace(config, resume_from=None)
    return dataclasses.replace(config, resume_from=latest_checkpoint(config.checkpoint_folder))
