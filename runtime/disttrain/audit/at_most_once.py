"""Promise 2: every push is applied at most once."""

from collections.abc import Iterator, Sequence

import numpy as np

from disttrain.audit.evidence import Evidence, Incarnation, Records
from disttrain.audit.finding import Finding, judge
from disttrain.audit.history import History
from disttrain.parameter_server.ledger import Kind

PROMISE = "2. every update is applied at most once"

_PUSH = ["sender", "incarnation", "sequence"]
_CHUNK = [*_PUSH, "chunk"]


def check(evidence: Evidence, histories: Sequence[History]) -> Finding:
    """No push twice in the values of a shard, and no chunk twice in one incarnation of it."""
    violations = [
        *(text for history in histories for text in _twice_in_values(history)),
        *(
            text
            for incarnation in evidence.shard_incarnations
            for text in _twice_in_incarnation(incarnation)
        ),
    ]
    updates = sum(len(history.surviving) for history in histories)
    chunks = sum(
        len(incarnation.of(Kind.CHUNK_APPLIED)) for incarnation in evidence.shard_incarnations
    )
    text = f"{updates} updates on {len(histories)} shards, each once"
    return judge(PROMISE, violations, f"{text}; {chunks} chunks" if evidence.record else text)


def _twice_in_values(history: History) -> Iterator[str]:
    for push in _repeated(history.surviving, _PUSH):
        yield f"shard-{history.shard} holds {_sentence(push)} twice"


def _twice_in_incarnation(incarnation: Incarnation) -> Iterator[str]:
    for push in _repeated(incarnation.each(), _PUSH):
        yield f"{incarnation.name} applied {_sentence(push)} twice"
    for chunk in _repeated(incarnation.of(Kind.CHUNK_APPLIED), _CHUNK):
        yield f"{incarnation.name} applied chunk {chunk[3]} of {_sentence(chunk)} twice"


def _repeated(records: Records, columns: list[str]) -> list[list[int]]:
    if not len(records):
        return []
    keys = np.stack([records[column].astype(np.int64) for column in columns], axis=1)
    found, counts = np.unique(keys, axis=0, return_counts=True)
    repeated: list[list[int]] = found[counts > 1].tolist()
    return repeated


def _sentence(push: list[int]) -> str:
    return f"push {push[2]} of replica-{push[0]} (incarnation {push[1]})"
