"""Segments of shared memory: made by a client, checked and mapped by a server. Linux only.

A segment is a file that lies in no folder (memfd): it vanishes with the last process that holds
it, however that ends. It is sealed against resizing, so a mapping can never fault.
"""

import fcntl
import itertools
import json
import mmap
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from disttrain.transport.errors import SegmentRefused
from disttrain.transport.interface import Buffer

_F_ADD_SEALS = 1033
_F_GET_SEALS = 1034
_F_SEAL_SEAL = 1
_F_SEAL_SHRINK = 2
_F_SEAL_GROW = 4
_SEALS = _F_SEAL_SEAL | _F_SEAL_SHRINK | _F_SEAL_GROW
_LONGEST_DESCRIPTION = 1024
_serials = itertools.count(1)


class Access(StrEnum):
    """What the server may do with a segment."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """What a client says about one of its segments; `open_segment` checks it."""

    segment: int
    process: int
    descriptor: int
    nbytes: int
    name: str
    access: Access


class SegmentMemory:
    """Buffers that other processes of this user can map."""

    def __init__(self, job: int, owner: str) -> None:
        self._prefix = f"{name_prefix(job)}{owner}"
        self._buffers: list[Buffer] = []

    def allocate(self, name: str, nbytes: int) -> Buffer:
        """A new segment; its number and its name are never used again in this process."""
        segment = next(_serials)
        full_name = f"{self._prefix}-{name}-{segment}"
        descriptor = os.memfd_create(full_name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, max(nbytes, 1))
        fcntl.fcntl(descriptor, _F_ADD_SEALS, _SEALS)
        view = memoryview(mmap.mmap(descriptor, max(nbytes, 1)))[:nbytes]
        buffer = Buffer(name=full_name, view=view, segment=segment, descriptor=descriptor)
        self._buffers.append(buffer)
        return buffer

    def close(self) -> None:
        for buffer in self._buffers:
            buffer.close()
        self._buffers.clear()


def name_prefix(job: int) -> str:
    """How the names of all segments of a job begin."""
    return f"disttrain-{job:016x}-"


def describe(buffer: Buffer, access: Access) -> bytes:
    return json.dumps(
        {
            "segment": buffer.segment,
            "process": os.getpid(),
            "descriptor": buffer.descriptor,
            "nbytes": max(buffer.nbytes, 1),
            "name": buffer.name,
            "access": access,
        }
    ).encode()


def parse(payload: bytes | memoryview) -> Description:
    """The description in an ATTACH; SegmentRefused if it is none."""
    if len(payload) > _LONGEST_DESCRIPTION:
        message = f"description of {len(payload)} bytes; at most {_LONGEST_DESCRIPTION}"
        raise SegmentRefused(message)
    try:
        fields = json.loads(bytes(payload))
        description = Description(**(fields | {"access": Access(fields["access"])}))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        message = f"not a description of a segment: {error}"
        raise SegmentRefused(message) from error
    numbers = (description.segment, description.process, description.descriptor, description.nbytes)
    if not isinstance(description.name, str):
        message = f"name {description.name!r}"
        raise SegmentRefused(message)
    if any(type(number) is not int or not 0 <= number < 1 << 62 for number in numbers):
        message = f"numbers out of range: {numbers}"
        raise SegmentRefused(message)
    return description


def open_segment(description: Description, job: int) -> memoryview:
    """The peer's segment. Name, seals and size are checked on the very file that is mapped."""
    path = f"/proc/{description.process}/fd/{description.descriptor}"
    _check_name(path, description, job)
    try:
        descriptor = os.open(path, _open_flags(description.access))
    except OSError as error:
        message = f"cannot open {description.name!r} of process {description.process}: {error}"
        raise SegmentRefused(message) from error
    try:
        _check_name(f"/proc/self/fd/{descriptor}", description, job)
        return _map_checked(descriptor, description)
    finally:
        os.close(descriptor)


def _open_flags(access: Access) -> int:
    return os.O_CLOEXEC | os.O_NONBLOCK | (os.O_RDWR if access is Access.WRITE else os.O_RDONLY)


def _check_name(path: str, description: Description, job: int) -> None:
    """Before opening, so that no device or pipe is touched; and after it, on what was opened."""
    try:
        target = str(Path(path).readlink())
    except OSError as error:
        message = f"process {description.process} shows no segment {description.name!r}: {error}"
        raise SegmentRefused(message) from error
    expected = f"/memfd:{description.name} (deleted)"
    if target != expected or not description.name.startswith(name_prefix(job)):
        message = (
            f"{path} is {target!r} instead of a segment of this job named {description.name!r}"
        )
        raise SegmentRefused(message)


def _map_checked(descriptor: int, description: Description) -> memoryview:
    if fcntl.fcntl(descriptor, _F_GET_SEALS) & _SEALS != _SEALS:
        message = f"segment {description.name!r} is not sealed against resizing"
        raise SegmentRefused(message)
    size = os.fstat(descriptor).st_size
    if size != description.nbytes:
        message = f"segment {description.name!r} has {size} bytes instead of {description.nbytes}"
        raise SegmentRefused(message)
    writable = description.access is Access.WRITE
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    return memoryview(mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED, prot=protection))
