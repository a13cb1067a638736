"""A parameter server inside the test: plain SGD on the whole vector, no shards, no messages."""

import threading
from collections.abc import Collection, Mapping, Sequence

import torch

from builders import placements
from builders.replicas import tensor
from disttrain.parameter_server.client import (
    FetchClient,
    FetchResult,
    Push,
    PushClient,
    PushResult,
    Version,
)
from disttrain.parameter_server.narrowing import widened
from disttrain.state.fragments import WHOLE, Fragment
from disttrain.state.vector import Vector
from disttrain.transport.header import ElementType
from disttrain.transport.interface import Buffer


class OneShard(PushClient, FetchClient):
    """Both sides of a client at once. `gate` holds back pushes, `fetch_gate` fetches."""

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.samples = 0
        self.values: dict[Vector, torch.Tensor] = {}
        self.version = 0
        self.pushes: list[Push] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fetch_gate = threading.Event()
        self.fetch_gate.set()

    @property
    def shards(self) -> Sequence[int]:
        return (0,)

    @property
    def all_shards(self) -> int:
        return 1

    def upload(self, values: Mapping[Vector, Buffer], shards: Collection[int]) -> None:
        del shards
        self.values = {vector: tensor(buffer, vector).clone() for vector, buffer in values.items()}

    def push(self, push: Push) -> list[PushResult]:
        assert self.gate.wait(20)
        staleness = self.version - push.versions[0][1]
        gradient = self._gradient(push)
        if push.scale != 1.0:
            gradient = gradient * push.scale
        values = self.values[placements.PARAMETERS]
        for run in push.fragment.runs(len(values)):
            part = slice(run.first, run.end)
            values[part].add_(gradient[part], alpha=-self.learning_rate)
        for buffers, runs in push.runs().items():
            for run in runs:
                sent = tensor(push.buffers[buffers], buffers)[run.first : run.end]
                self.values[buffers][run.first : run.end] = sent
        self.version += 1
        self.samples += push.samples
        self.pushes.append(push)
        return [PushResult(shard=0, version=Version(1, self.version), staleness=staleness)]

    def _gradient(self, push: Push) -> torch.Tensor:
        vector, sent = placements.PARAMETERS.rounded(push.rounded_to), push.gradient
        if push.rounded_to is ElementType.INT8:
            return widened(tensor(sent, vector), 0, len(self.values[placements.PARAMETERS]))
        return tensor(sent, vector).float()

    def fetch(
        self, into: Mapping[Vector, Buffer], fragment: Fragment = WHOLE, *, steps: int = 0
    ) -> FetchResult:
        del steps
        assert self.fetch_gate.wait(20)
        for vector, buffer in into.items():
            there, here = self.values[vector.held], tensor(buffer, vector)
            of = fragment if vector.is_trained else WHOLE
            for run in of.runs(len(there)):
                here[run.first : run.end] = there[run.first : run.end]
        return FetchResult(
            versions=(Version(1, self.version),),
            samples=self.samples,
            buffers_changed=True,
            fragment=fragment,
        )

    def stop(self) -> None:
        self.gate.set()
        self.fetch_gate.set()

    def close(self) -> None:
        pass
