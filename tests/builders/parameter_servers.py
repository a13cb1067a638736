"""A parameter server inside the test: plain SGD on the whole vector, no shards, no messages."""

import threading
from collections.abc import Sequence

import torch

from disttrain.replica.exchange import FetchResult, Push, PushResult
from disttrain.replica.model_tensors import ELEMENT_DTYPES
from disttrain.transport.header import Vector
from disttrain.transport.interface import Buffer


class OneShard:
    """Both sides of a client at once. `gate` holds back pushes, `fetch_gate` fetches."""

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.values: dict[Vector, torch.Tensor] = {}
        self.version = 0
        self.pushes: list[Push] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fetch_gate = threading.Event()
        self.fetch_gate.set()

    def upload(self, values: dict[Vector, Buffer], shards: Sequence[int]) -> None:
        del shards
        self.values = {vector: tensor(buffer, vector).clone() for vector, buffer in values.items()}

    def push(self, push: Push) -> list[PushResult]:
        assert self.gate.wait(20)
        staleness = self.version - push.versions[0][1]
        gradient = tensor(push.gradient, Vector.PARAMETERS)
        if push.scale != 1.0:
            gradient = gradient * push.scale
        self.values[Vector.PARAMETERS].add_(gradient, alpha=-self.learning_rate)
        for vector, runs in push.changed.items():
            for run in runs:
                sent = tensor(push.buffers[vector], vector)[run.first : run.end]
                self.values[vector][run.first : run.end] = sent
        self.version += 1
        self.pushes.append(push)
        return [PushResult(version=(1, self.version), staleness=staleness)]

    def fetch(self, into: dict[Vector, Buffer]) -> FetchResult:
        assert self.fetch_gate.wait(20)
        for vector, buffer in into.items():
            tensor(buffer, vector).copy_(self.values[vector])
        return FetchResult(versions=((1, self.version),))


def tensor(buffer: Buffer, vector: Vector) -> torch.Tensor:
    return torch.frombuffer(buffer.view, dtype=ELEMENT_DTYPES[vector])
