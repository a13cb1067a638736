"""A package index with PyTorch for images of tests: the installed build, without CUDA's gigabytes.

The build of the package index is linked against 3 GB of CUDA libraries and cannot be imported
without them, and PyTorch's own index with a CPU build is not within reach everywhere. So the
installed PyTorch is packed again with a stand-in for those libraries, in which every function
returns the CUDA error "no device": PyTorch then says that there is no GPU, and computes on the
CPU as it always does. Only for tests: users build their images from PyTorch's own builds.
"""

import base64
import hashlib
import platform
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path, PurePath
from typing import Final

from cluster import commands, layout

NO_DEVICE: Final = {"x86_64": "mov $100, %eax\nret\n", "aarch64": "mov w0, #100\nret\n"}
"""`return cudaErrorNoDevice;` for each processor."""
LEFT_OUT: Final = ("torch/include/", "torch/share/", "torch/test/", "torch/bin/test_")
"""What only compilers and PyTorch's own tests read."""
CUDA_LIBRARIES: Final = ("libcu", "libnccl", "libnv")
CUDA_FUNCTIONS: Final = ("cu", "__cuda", "nccl", "nv")
STAND_IN: Final = "libno_cuda.so"


def index(folder: Path | None = None) -> Path:
    """Return a folder that pip takes as an index, `file://...`; made at the first call."""
    version = distribution("torch").version.partition("+")[0]
    source = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    home = folder or layout.cache() / f"torch-{version}-{_tag()}-{source}"
    page = home / "torch" / "index.html"
    if not page.exists():
        page.parent.mkdir(parents=True, exist_ok=True)
        wheel = _make_wheel(page.parent, f"{version}+nocuda")
        page.write_text(f'<!DOCTYPE html><a href="{wheel.name}">{wheel.name}</a>\n')
    return home


def _make_wheel(folder: Path, version: str) -> Path:
    wheel = folder / f"torch-{version}-{_tag()}.whl"
    unfinished = wheel.with_suffix(".unfinished")
    with (
        tempfile.TemporaryDirectory() as stand_ins,
        # Stored: what is unpacked at once, on the same machine, need not be small.
        zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED) as archive,
    ):
        packed = Packed(archive)
        for name, path in _files():
            packed.add(name, path.read_bytes())
        for library in _make_stand_ins(Path(stand_ins)):
            packed.add(f"torch/lib/{library.name}", library.read_bytes())
        packed.add_metadata(version)
    unfinished.replace(wheel)
    return wheel


class Packed:
    """A wheel that grows file by file and ends with the list of them."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._record: list[str] = []

    def add(self, name: str, content: bytes) -> None:
        """Add a file; executable, as some of PyTorch's are programs."""
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self._record.append(f"{name},sha256={digest},{len(content)}\n")
        entry = zipfile.ZipInfo(name)
        entry.external_attr = 0o100755 << 16
        self._archive.writestr(entry, content)

    def add_metadata(self, version: str) -> None:
        """Add what makes the files a distribution; call it last."""
        home = f"torch-{version}.dist-info"
        self.add(
            f"{home}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n".encode()
        )
        self.add(f"{home}/WHEEL", f"Wheel-Version: 1.0\nTag: {_tag()}\n".encode())
        record = "".join([*self._record, f"{home}/RECORD,,\n"])
        self._archive.writestr(f"{home}/RECORD", record)


def _files() -> Iterator[tuple[str, Path]]:
    """Return name and place of every file of the installed PyTorch that it needs to run."""
    for file in distribution("torch").files or ():
        name = file.as_posix()
        if _is_kept(name):
            yield name, Path(str(file.locate()))


def _is_kept(name: str) -> bool:
    inside = name.startswith(("torch/", "torchgen/", "functorch/"))
    return inside and not name.startswith(LEFT_OUT) and "__pycache__" not in PurePath(name).parts


def _make_stand_ins(folder: Path) -> Iterable[Path]:
    """Make a library for each one of CUDA's, and one with all their functions.

    The loader refuses a symbol from the very library that a version of it was asked of, if that
    has no versions; from another one it takes it. Therefore the functions lie in one of their own.
    """
    libraries = [path for name, path in _files() if ".so" in PurePath(name).name]
    names = sorted(_cuda_libraries(libraries))
    if not names:
        return []  # A CPU build.
    source = folder / "stand_in.s"
    symbols = "".join(f'.globl "{name}"\n"{name}":\n' for name in sorted(_missing(libraries)))
    source.write_text(f".text\n{symbols}{NO_DEVICE[platform.machine()]}")
    commands.run("as", source, "-o", source.with_suffix(".o"))
    _link(folder / STAND_IN, source.with_suffix(".o"))
    for name in names:
        _link(folder / name, "--no-as-needed", "-L", folder, f"-l:{STAND_IN}")
    return [folder / STAND_IN, *(folder / name for name in names)]


def _link(target: Path, *inputs: str | Path) -> None:
    how = ("-shared", "-soname", target.name, "-rpath", "$ORIGIN", "-z", "noexecstack")
    commands.run("ld", *how, "-o", target, *inputs)


def _cuda_libraries(libraries: list[Path]) -> set[str]:
    lines = commands.run("readelf", "--dynamic", "--wide", *libraries).splitlines()
    needed = {line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line}
    return {name for name in needed if name.startswith(CUDA_LIBRARIES)}


def _missing(libraries: list[Path]) -> set[str]:
    """Return CUDA's functions that the libraries call."""
    undefined = set(_symbols(libraries, "--undefined-only"))
    own = set(_symbols(libraries, "--defined-only"))
    return {name for name in undefined - own if name.startswith(CUDA_FUNCTIONS)}


def _symbols(libraries: list[Path], which: str) -> Iterator[str]:
    for line in commands.run("nm", "--dynamic", which, *libraries).splitlines():
        if not line.endswith(":"):
            yield line.split()[-1].partition("@")[0] if line else ""


def _tag() -> str:
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return f"{python}-{python}-linux_{platform.machine()}"
