"""The Debian packages that the cluster is made of, installed when they are missing."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from cluster import commands, layout
from cluster.errors import Unavailable
from cluster.lock import Lock

PROGRAMS = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "buildah": "buildah",
    "ld": "binutils",
    "mmdebstrap": "mmdebstrap",
    "iptables": "iptables",
    "ip": "iproute2",
    "conntrack": "conntrack",
    "/bin/busybox": "busybox-static",
    "sysctl": "procps",
    "openssl": "openssl",
    "nsenter": "util-linux",
}
"""A program of each package, and the package."""

POLICY = Path("/usr/sbin/policy-rc.d")
"""Debian asks this program before it starts a service that was just installed."""
INSTALL_LIMIT = timedelta(minutes=10)


def missing(programs: Mapping[str, str] = PROGRAMS) -> list[str]:
    """Return the packages whose programs are not on this machine."""
    return [package for program, package in programs.items() if shutil.which(program) is None]


def install_missing(programs: Mapping[str, str] = PROGRAMS) -> None:
    """Install what is missing, without starting any service; raise Unavailable if we may not."""
    wanted = missing(programs)
    if not wanted:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        message = f"these Debian packages are missing: {', '.join(wanted)}"
        raise Unavailable(message)
    with Lock.acquire(INSTALL_LIMIT, layout.packages_lock_file()), _no_service_starts():
        commands.run_patiently("apt-get", "update", "-qq", limit=INSTALL_LIMIT)
        quietly = {"DEBIAN_FRONTEND": "noninteractive"}
        install = ("apt-get", "install", "-y", "-qq", "--no-install-recommends")
        commands.run_patiently(*install, *wanted, limit=INSTALL_LIMIT, environment=quietly)


@contextlib.contextmanager
def _no_service_starts() -> Iterator[None]:
    if POLICY.exists():
        # Whoever wrote it decides about services on this machine.
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
