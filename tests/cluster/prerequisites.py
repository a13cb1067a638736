"""What a machine must be to run the cluster, and the reason to give where it is not."""

import os
import platform
import shutil

from cluster import binaries, cgroups, debian
from cluster.errors import Unavailable


def check() -> None:
    """Raise Unavailable, with the reason, unless this machine can run a cluster."""
    reason = reason_against()
    if reason is not None:
        raise Unavailable(reason)


def reason_against() -> str | None:
    """Return why no cluster can be started here, None if one can."""
    if platform.system() != "Linux":
        return f"a test cluster needs Linux, this is {platform.system()}"
    if os.geteuid() != 0:
        return "a test cluster needs root: it makes mounts, cgroups and a network"
    if binaries.missing() and shutil.which("go") is None:
        return "a test cluster needs Go (https://go.dev) to build Kubernetes once"
    if debian.missing() and shutil.which("apt-get") is None:
        return f"a test cluster needs these Debian packages: {', '.join(debian.missing())}"
    if cgroups.version() != 1:
        return "a test cluster needs cgroup version 1, which is the one it was tried with"
    return None
