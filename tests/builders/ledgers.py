"""Logs of runs that never ran, for the audit: consistent at first, then broken on purpose."""

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from disttrain.audit.evidence import Evidence, Incarnation, SavedCheckpoint, Summary
from disttrain.parameter_server import ledger as shard_folding
from disttrain.parameter_server import ledger as shard_ledger
from disttrain.replica import ledger as replica_ledger
from disttrain.telemetry.folding import Records

SECOND = 10**9
START = 1_800_000_000 * SECOND

ShardRecord = dict[str, int]
ReplicaRecord = dict[str, int]


class LoggedRun:
    """Replicas push 8 samples at a time to all shards; change any log before `evidence`."""

    def __init__(self, shards: int = 2, replicas: int = 2, *, record: bool = False) -> None:
        self.record = record
        self.shards: dict[tuple[int, int], list[ShardRecord]] = {}
        self.replicas: dict[tuple[int, int], list[ReplicaRecord]] = {}
        self.summary: dict[str, Any] = {
            "phase": "Complete",
            "samples": 0,
            "epochs": 0,
            "restarts": {"coordinator": 0, "shard": 0, "replica": 0},
            "samplesRepeated": 0,
            "samplesPartiallyApplied": 0,
            "partialChunks": 0,
            "updatesLost": 0,
            "updatesLostBySender": {},
            "nonFiniteGradients": 0,
            "nonFiniteGradientsByReplica": {},
            "resumedFrom": None,
        }
        self.train_samples: int | None = None
        self.has_trained = True
        self.checkpoints: list[SavedCheckpoint] = []
        self.now = START
        self._versions: dict[int, tuple[int, int]] = {}
        self._incarnations: dict[int, int] = {}
        self._sequences: dict[tuple[int, int], int] = {}
        self._lost: dict[tuple[int, int], int] = {}
        for shard in range(shards):
            self._versions[shard] = (1, 0)
            self.shards[shard, 1] = []
        for replica in range(replicas):
            self.join(replica, 1)

    def join(self, replica: int, incarnation: int) -> None:
        """A new incarnation of a replica is admitted by all shards."""
        self._incarnations[replica] = incarnation
        self.replicas[replica, incarnation] = []
        for shard in self._versions:
            self.log(shard, shard_ledger.Kind.ADMITTED, sender=replica, incarnation=incarnation)

    def push(
        self,
        replica: int,
        *,
        seconds: float = 1.0,
        samples: int = 8,
        shards: Container[int] | None = None,
        **place: int,
    ) -> None:
        """One update, applied and acknowledged, of the versions just before it.

        `shards`: which alone do, so that no account has its samples; else all. `place`: its `lease`
        and `lease_offset`.
        """
        own = self._incarnations[replica]
        sequence = self._sequences.get((replica, own), 0) + 1
        self._sequences[replica, own] = sequence
        self.now += int(seconds * SECOND)
        for shard, (incarnation, count) in self._versions.items():
            if shards is not None and shard not in shards:
                continue
            read = {"read_version": count, "read_incarnation": incarnation}
            self._apply(shard, replica, samples=samples, **read, **place)
            self.note(
                replica,
                replica_ledger.Kind.ACKNOWLEDGED,
                number=sequence,
                shard=shard,
                shard_incarnation=incarnation,
                version=count + 1,
                samples=samples,
            )
        if shards is None:
            self.summary["samples"] += samples

    def restart_shard(self, shard: int, version: int, lost: dict[int, int]) -> None:
        """An incarnation with a checkpoint's version; `lost`: how many updates of each replica."""
        incarnation = self._versions[shard][0] + 1
        self._versions[shard] = (incarnation, version)
        self.shards[shard, incarnation] = []
        self.log(shard, shard_ledger.Kind.RESTORED, version=version)
        for replica, count in lost.items():
            self._lose(shard, replica, count)
        for (where, replica), count in self._lost.items():
            if where == shard and count:
                own = self._incarnations[replica]
                fields = {"sender": replica, "incarnation": own, "samples": count}
                self.log(shard, shard_ledger.Kind.LOST, **fields)
        for replica, own in self._incarnations.items():
            self.log(shard, shard_ledger.Kind.ADMITTED, sender=replica, incarnation=own)
        self.summary["restarts"]["shard"] += 1

    def apply_again(self, shard: int, replica: int) -> None:
        """The last push of a replica is applied by one shard, which had lost it."""
        self._lose(shard, replica, -1)
        incarnation, count = self._versions[shard]
        read = {"read_version": count + 1, "read_incarnation": incarnation - 1}
        self._apply(shard, replica, samples=8, staleness=-1, **read)

    def _apply(self, shard: int, replica: int, **how: int) -> None:
        """A shard applies the last push of a replica."""
        incarnation, count = self._versions[shard]
        self._versions[shard] = (incarnation, count + 1)
        sender = {"sender": replica, "incarnation": self._incarnations[replica]}
        sequence = self._sequences[replica, self._incarnations[replica]]
        pushed = shard_ledger.Kind.PUSHED
        self.log(shard, pushed, sequence=sequence, version=count + 1, **sender, **how)

    def resume(self, versions: Sequence[int], shards: int) -> None:
        """Another run goes on from a checkpoint that holds so many updates of each shard."""
        self._versions = {shard: (1001, min(versions)) for shard in range(shards)}
        for shard in range(shards):
            self.shards[shard, 1001] = []
            self.log(shard, shard_ledger.Kind.RESTORED, version=min(versions))
            lost: dict[int, int] = {}
            for previous in range(shard, len(versions), shards):
                version = versions[previous]
                self.log(shard, shard_ledger.Kind.TAKEN_OVER, chunk=previous, version=version)
                for record in self.shards[previous, 1]:
                    if record["kind"] == shard_ledger.Kind.PUSHED and record["version"] > version:
                        lost[record["sender"]] = lost.get(record["sender"], 0) + 1
            for replica, count in lost.items():
                self._lose(shard, replica, count)
                fields = {"sender": replica, "incarnation": 1, "samples": count}
                self.log(shard, shard_ledger.Kind.LOST, **fields)
        self.summary |= {"samples": 8 * max(versions), "resumedFrom": "checkpoints/00000001"}
        for replica in list(self._incarnations):
            self.join(replica, 1001)

    def _lose(self, shard: int, replica: int, count: int) -> None:
        self._lost[shard, replica] = self._lost.get((shard, replica), 0) + count
        by_sender, name = self.summary["updatesLostBySender"], f"replica-{replica}"
        by_sender[name] = by_sender.get(name, 0) + count
        self.summary["updatesLost"] += count

    def fence(self, replica: int) -> None:
        """All shards refuse this incarnation of a replica from now on."""
        for shard in self._versions:
            self.log(
                shard,
                shard_ledger.Kind.FENCED,
                sender=replica,
                incarnation=self._incarnations[replica],
            )

    def log(self, shard: int, kind: shard_ledger.Kind, **fields: int) -> None:
        """Append to the present incarnation of a shard."""
        incarnation = self._versions[shard][0]
        common = {"time_ns": self.now, "kind": int(kind), "shard_incarnation": incarnation}
        self.shards[shard, incarnation].append(common | fields)

    def note(self, replica: int, kind: replica_ledger.Kind, **fields: int) -> None:
        """Append to the present incarnation of a replica."""
        record = {"time_ns": self.now, "kind": int(kind), **fields}
        self.replicas[replica, self._incarnations[replica]].append(record)

    def evidence(self, *, settled: int | None = None) -> Evidence:
        """What an audit reads of it; with `audit: summary` when that version is `settled`."""
        shards = _incarnations("shard", self.shards, shard_ledger.RECORD)
        replicas = _incarnations("replica", self.replicas, replica_ledger.RECORD)
        if settled is not None:
            shards = _folded(shards, lambda log: shard_folding.fold(log, settled))
            replicas = _folded(replicas, replica_ledger.fold)
        return Evidence(
            record=self.record,
            shards=shards,
            replicas=replicas,
            summary=Summary.model_validate(self.summary),
            train_samples=self.train_samples,
            checkpoints=tuple(self.checkpoints),
            has_trained=self.has_trained,
        )


def _incarnations(
    role: str,
    logs: dict[tuple[int, int], list[dict[str, int]]],
    dtype: np.dtype[np.void],
) -> dict[int, tuple[Incarnation, ...]]:
    incarnations: dict[int, tuple[Incarnation, ...]] = {}
    for (index, incarnation), log in sorted(logs.items()):
        made = Incarnation(
            process=f"{role}-{index}",
            index=index,
            incarnation=incarnation,
            records=_array(log, dtype),
        )
        incarnations[index] = (*incarnations.get(index, ()), made)
    return incarnations


def _folded(
    incarnations: dict[int, tuple[Incarnation, ...]], fold: Callable[[Records], Records]
) -> dict[int, tuple[Incarnation, ...]]:
    return {
        index: tuple(
            replace(incarnation, records=fold(incarnation.records)) for incarnation in mine
        )
        for index, mine in incarnations.items()
    }


def _array(log: Sequence[dict[str, int]], dtype: np.dtype[np.void]) -> "np.ndarray[Any, Any]":
    records = np.zeros(len(log), dtype)
    for place, record in enumerate(log):
        for name, value in record.items():
            records[name][place] = value
    return records
