"""The fixed header in front of every message: what its fields and their values mean. Pure."""

from enum import IntEnum
from typing import NamedTuple

import xxhash

MAGIC = b"DTRN"
PROTOCOL_VERSION = 3


class Role(IntEnum):
    """Who sent a message."""

    COORDINATOR = 1
    SHARD = 2
    REPLICA = 3
    LAUNCHER = 4
    """The local launcher or a command-line tool."""


class Verb(IntEnum):
    """What a message asks or answers. Requests have even numbers, answers odd ones."""

    CONTROL_REQUEST = 2
    """JSON payload to the coordinator; `sequence` pairs it with its answer."""
    CONTROL_REPLY = 3
    CONTROL_COMMAND = 5
    """JSON payload from the coordinator to a member, unasked; `sequence` is its number."""

    HELLO = 16
    """A sender introduces itself to a shard; `sequence` is its first unacknowledged push, `first`
    the number of the connection, higher than those of its earlier ones."""
    WELCOME = 17
    """`sequence` and `chunk` say where the sender goes on; `version` is the shard's."""
    UPLOAD = 18
    """One chunk of initial values."""
    UPLOADED = 19
    """Every chunk of an upload has been stored."""
    PUSH = 20
    """One chunk of an update."""
    PUSHED = 21
    """The last chunk of push `sequence` was applied; `version` is the shard's after it."""
    FETCH = 22
    """Asks for `count` chunks from `chunk` on; the answer goes to `segment` unless that is zero."""
    FETCHED = 23
    """One chunk of the values, of `version`."""
    STAGE = 24
    """One chunk of the gradient of a group of portions: an attempt's (`lease`) at group
    `lease_offset` of evaluation `sequence`. The shard keeps it until one attempt is committed."""
    STAGED = 25
    """Nothing more of the attempt `lease` is needed here: all of it has arrived, or another one
    has won its group."""
    REFUSED = 31
    """A request was not carried out; `reason` says why, the payload is a sentence."""

    ATTACH = 40
    """Shared memory: describes a segment of the sender (JSON). Handled inside the transport."""


class ElementType(IntEnum):
    """Type of the payload's elements; little-endian."""

    BYTES = 0
    FLOAT32 = 1
    FLOAT64 = 2
    INT64 = 3
    BFLOAT16 = 4
    """The upper half of FLOAT32. Only messages have it, in place of that."""
    INT8 = 5
    """Whole numbers in blocks, each behind the FLOAT32 that they are multiplied by. Only pushes
    have it, in place of that."""


ELEMENT_BYTES = {
    ElementType.BYTES: 1,
    ElementType.FLOAT32: 4,
    ElementType.FLOAT64: 8,
    ElementType.INT64: 8,
    ElementType.BFLOAT16: 2,
}
"""INT8 has none: see `blocks_around`."""

BLOCK_ELEMENTS = 128
"""Of INT8, counted from the vector's first element on; the last block is as long, filled with 0."""
SCALE_BYTES = 4
BLOCK_BYTES = SCALE_BYTES + BLOCK_ELEMENTS


def blocks_around(first: int, count: int) -> tuple[int, int]:
    """Where elements of INT8 lie, their neighbours included: offset and length in bytes."""
    begin = first // BLOCK_ELEMENTS
    end = -(-(first + count) // BLOCK_ELEMENTS) if count else begin
    return begin * BLOCK_BYTES, (end - begin) * BLOCK_BYTES


class Reason(IntEnum):
    """Why a request was refused. Below 16 it is worth trying again, the others are final."""

    NONE = 0
    NOT_READY = 1
    """The initial values are not complete, or the shard is still restoring."""
    UNKNOWN_SENDER = 2
    """The membership does not hold this sender yet; the coordinator's word may be under way."""
    OUT_OF_ORDER = 3
    """Another chunk is expected: say HELLO and go on where WELCOME says."""
    WRONG_RECEIVER = 4
    """Addressed to another incarnation of this process: say HELLO."""
    BUSY = 5
    """A limit on memory or work in progress is reached, or others come first."""
    OLD_INCARNATION = 16
    """The sender was fenced: a newer incarnation of it exists, or it was declared dead."""
    NOT_FINITE = 17
    WRONG_LAYOUT = 18
    NOT_ALLOWED = 20
    """The verb is not for this role."""
    MALFORMED = 21
    WRONG_EVALUATION = 22
    """The evaluation that the gradient is for is over, or has never begun: drop the attempt."""
    TOO_STALE = 23
    """The gradient is of parameters that are older than the job takes."""


class Header(NamedTuple):
    """What stands before every payload. Fields that a verb does not use are zero."""

    verb: int
    job: int
    """A 64-bit digest of the job's uid; messages of other jobs are refused."""
    role: int
    sender: int
    """Index of the sending process within its role."""
    incarnation: int
    """Incarnation of the sender."""
    receiver_incarnation: int
    """Incarnation of the process addressed, as far as the sender knows; 0 is unknown."""
    sequence: int
    """Number of the push or fetch in its sender's incarnation; STAGE, and FETCH of a trial point:
    of the evaluation."""
    version_incarnation: int
    version: int
    """Updates applied (FETCHED, PUSHED), or those the gradient was computed on (PUSH)."""
    reason: int
    vector: int
    """Number of the vector in the placement, from 1."""
    element_type: int
    chunk: int
    """Number of this chunk among those of its push, upload or fetch at this shard."""
    chunks: int
    """How many chunks the push, upload or fetch has at this shard."""
    first: int
    """First element, counted in the whole vector (not in the shard's range)."""
    count: int  # type: ignore[assignment]  # Hides tuple.count, which no one asks of a header.
    """Elements in the payload (FETCH: number of chunks asked for)."""
    samples: int
    """Training samples behind a push (PUSH), or in all complete pushes to the shard (FETCHED)."""
    lease: int
    """Lease that the last sample of a push belongs to; 0 is none. STAGE: the attempt."""
    lease_offset: int
    """Samples of that lease that are in this push or an earlier one. STAGE: the group."""
    scale: float
    """Factor for the payload before it is applied: gradient-norm clipping."""
    staleness: int
    """PUSHED: updates between the version the gradient was computed on and the one it met.
    -1 is unknown."""
    fragment: int
    """PUSH, FETCH: which fragment of what is trained, from 1; 0 is all of it."""
    local_steps: int
    """PUSH: a replica's own steps that the difference is of; 0 if it is a gradient. FETCH: steps
    that the next push is of, if the first of them is computed with it; else 0."""
    local_samples: int
    """PUSH: samples of these steps. `samples` has those that no later fragment has any more."""
    segment: int
    """Shared memory: number of the client's segment that holds (PUSH) or receives (FETCH) the
    payload; 0 is none."""
    segment_offset: int
    """Bytes from the start of that segment."""
    payload_bytes: int


EMPTY = Header(*([0] * len(Header._fields)))
"""A header in which every field is unused."""


def job_digest(job_uid: str) -> int:
    """The xxh3_64 of the uid; never 0, which no job has."""
    return xxhash.xxh3_64_intdigest(job_uid.encode()) or 1
