"""What the components change on the machine itself: noted before, put back after.

Some folders are fixed in their code, and the kubelet sets kernel settings for the whole machine.
"""

import json
import shutil
from pathlib import Path

from cluster import layout

FOLDERS = (
    "/etc/cni",
    "/opt/cni",
    "/opt/containerd",
    "/run/containerd",
    "/run/kubernetes",
    "/run/netns",
    "/usr/libexec/kubernetes",
    "/var/lib/cni",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)
SETTINGS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
)
POD_LOGS = Path("/var/log/containers")


def note() -> None:
    """Note how the machine is; to be called before anything of the cluster runs."""
    absent = [folder for folder in FOLDERS if not Path(folder).exists()]
    settings = {name: _setting(name).read_text() for name in SETTINGS}
    _notes().write_text(json.dumps({"absent": absent, "settings": settings}))


def put_back() -> None:
    """Put everything back as it was noted, when nothing of the cluster runs any more."""
    if not _notes().exists():
        return
    noted = json.loads(_notes().read_text())
    for name, value in noted["settings"].items():
        if _setting(name).read_text() != value:
            _setting(name).write_text(value)
    for link in POD_LOGS.glob("*"):
        if link.is_symlink() and link.readlink().is_relative_to(layout.state()):
            link.unlink()
    for folder in noted["absent"]:
        shutil.rmtree(folder, ignore_errors=True)


def _setting(name: str) -> Path:
    return Path("/proc/sys") / name


def _notes() -> Path:
    return layout.state() / "machine.json"
