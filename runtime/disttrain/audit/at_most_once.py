"""Promise 2: every push is applied at most once."""

from collections.abc import Iterator, Sequence

import numpy as np

from disttrain.audit.evidence import Evidence, Life, Records
from disttrain.audit.finding import Finding, judge
from disttrain.audit.history import History
from disttrain.parameter_server.ledger import Kind

PROMISE = "2. every update is applied at most once"

_PUSH = ["sender", "incarnation", "sequence"]
_CHUNK = [*_PUSH, "chunk"]


def check(evidence: Evidence, histories: Sequence[History]) -> Finding:
    """No push twice in the values of a shard, and no chunk twice in one life of it."""
    violations = [
        *(text for history in histories for text in _twice_in_values(history)),
        *(text for life in evidence.shard_lives for text in _twice_in_life(life)),
    ]
    updates = sum(len(history.surviving) for history in histories)
    chunks = sum(len(life.of(Kind.CHUNK_APPLIED)) for life in evidence.shard_lives)
    text = f"{updates} updates on {len(histories)} shards, each once"
    return judge(PROMISE, violations, f"{text}; {chunks} chunks" if evidence.record else text)


def _twice_in_values(history: History) -> Iterator[str]:
    for push in _repeated(history.surviving, _PUSH):
        yield f"shard-{history.shard} holds {_sentence(push)} twice"


def _twice_in_life(life: Life) -> Iterator[str]:
    for push in _repeated(life.each(), _PUSH):
        yield f"{life.name} applied {_sentence(push)} twice"
    for chunk in _repeated(life.of(Kind.CHUNK_APPLIED), _CHUNK):
        yield f"{life.name} applied chunk {chunk[3]} of {_sentence(chunk)} twice"


def _repeated(records: Records, columns: list[str]) -> list[list[int]]:
    if not len(records):
        return []
    keys = np.stack([records[column].astype(np.int64) for column in columns], axis=1)
    found, counts = np.unique(keys, axis=0, return_counts=True)
    repeated: list[list[int]] = found[counts > 1].tolist()
    return repeated


def _sentence(push: list[int]) -> str:
    return f"push {push[2]} of replica-{push[0]} (life {push[1]})"
