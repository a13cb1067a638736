"""Ways to move gradients and parameters between processes, to be timed beside one another.

Each worker is a process that waits for "go", does one round and says how long it took. A round is a
push and a fetch of all elements.
"""

import os
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection

import torch
import torch.distributed
from torch import Tensor

from builders.replicas import replica
from builders.shard_process import ShardProcess
from disttrain.parameter_server.client import Push, Version
from disttrain.transport.config import TransportKind
from disttrain.transport.header import Vector

_PIECE = 1 << 20
Round = Callable[[], object]


def serve_rounds(pipe: Connection, one_round: Round) -> None:
    """Say that it is ready; for every word but "end" do a round, answer seconds and CPU seconds."""
    pipe.send("ready")
    while pipe.recv() != "end":
        began, busy = time.perf_counter(), time.process_time()
        one_round()
        pipe.send((time.perf_counter() - began, time.process_time() - busy))


def replica_worker(
    pipe: Connection,
    kind: TransportKind,
    shards: Sequence[ShardProcess],
    sender: tuple[int, int],
    elements: int,
) -> None:
    """A replica; sender 0 uploads first."""
    torch.set_num_threads(1)
    with replica(kind, shards, sender[0], sender[1]) as one:
        gradient = one.buffer(torch.randn(elements) * 0.01)
        into = {Vector.PARAMETERS: one.buffer(torch.randn(elements))}
        one.pushes.upload(into, range(len(shards)))
        numbers = iter(range(1, 1 << 40))

        def one_round() -> None:
            versions = [Version(1, 0)] * len(shards)
            one.pushes.push(Push(sequence=next(numbers), gradient=gradient, versions=versions))
            one.fetches.fetch(into)

        serve_rounds(pipe, one_round)


def raw_server(address: str, nbytes: int, piece: int = _PIECE) -> None:
    """Receive everything, then send everything, for ever."""
    memory = memoryview(bytearray(nbytes))
    memory[:] = bytes(nbytes)
    with socket.create_server(("127.0.0.1", int(address))) as listening:
        connection, _ = listening.accept()
        with connection:
            while _receive_all(connection, memory):
                _send_all(connection, memory, piece)


def raw_worker(pipe: Connection, address: str, nbytes: int) -> None:
    """The other end of `raw_server`."""
    outgoing, incoming = memoryview(bytearray(os.urandom(1 << 20) * (nbytes >> 20))), None
    incoming = memoryview(bytearray(len(outgoing)))
    incoming[:] = outgoing
    with _connected(int(address)) as connection:

        def one_round() -> None:
            _send_all(connection, outgoing, _PIECE)
            _receive_all(connection, incoming)

        serve_rounds(pipe, one_round)


def gloo_worker(pipe: Connection, port: int, rank: int, elements: int) -> None:
    """Rank 0 is the replica, rank 1 a shard that applies nothing."""
    torch.set_num_threads(1)
    values = torch.randn(elements)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=120),
    )

    def one_round() -> None:
        if rank == 0:
            torch.distributed.send(values, 1)
            torch.distributed.recv(values, 1)
        else:
            torch.distributed.recv(values, 0)
            torch.distributed.send(values, 0)

    serve_rounds(pipe, one_round)


class _RpcShard:
    """What the remote functions below work on, in the process of rank 1."""

    parameters: Tensor
    sums: Tensor
    step = torch.zeros(())


def rpc_push(gradient: Tensor) -> None:
    torch._fused_adagrad_(
        [_RpcShard.parameters],
        [gradient],
        [_RpcShard.sums],
        [_RpcShard.step],
        lr=0.01,
        lr_decay=0.0,
        weight_decay=0.0,
        eps=1e-10,
        maximize=False,
    )


def rpc_fetch() -> Tensor:
    return _RpcShard.parameters


def rpc_worker(pipe: Connection, port: int, rank: int, elements: int) -> None:
    """Rank 0 is the replica, rank 1 a shard with Adagrad."""
    from torch.distributed import rpc  # noqa: PLC0415  not in every build of torch

    torch.set_num_threads(1)
    gradient = torch.randn(elements) * 0.01
    _RpcShard.parameters, _RpcShard.sums = torch.randn(elements), torch.zeros(elements)
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}", rpc_timeout=60)
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=2, rpc_backend_options=options)  # type: ignore[no-untyped-call]

    def one_round() -> None:
        if rank == 0:
            rpc.rpc_sync("w1", rpc_push, args=(gradient,))
            rpc.rpc_sync("w1", rpc_fetch)

    serve_rounds(pipe, one_round)


def bound_worker(pipe: Connection, elements: int, piece: int = _PIECE // 4) -> None:
    """One Adagrad pass and one copy on one thread: what shared memory cannot beat."""
    torch.set_num_threads(1)
    _RpcShard.parameters, _RpcShard.sums = torch.randn(elements), torch.zeros(elements)
    gradient, copy = torch.randn(elements) * 0.01, torch.randn(elements)
    pieces = list(
        zip(
            _RpcShard.parameters.split(piece),  # type: ignore[no-untyped-call]
            _RpcShard.sums.split(piece),  # type: ignore[no-untyped-call]
            gradient.split(piece),  # type: ignore[no-untyped-call]
            copy.split(piece),  # type: ignore[no-untyped-call]
            strict=True,
        )
    )

    def one_round() -> None:
        for parameters, sums, sent, _ in pieces:
            torch._fused_adagrad_(
                [parameters], [sent], [sums], [_RpcShard.step],
                lr=0.01, lr_decay=0.0, weight_decay=0.0, eps=1e-10, maximize=False,
            )  # fmt: skip
        for parameters, _, _, place in pieces:
            place.copy_(parameters)

    serve_rounds(pipe, one_round)


def _connected(port: int) -> socket.socket:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.05)
    message = f"nobody listens on port {port}"
    raise TimeoutError(message)


def _send_all(connection: socket.socket, memory: memoryview, piece: int) -> None:
    for first in range(0, len(memory), piece):
        connection.sendall(memory[first : first + piece])


def _receive_all(connection: socket.socket, memory: memoryview) -> bool:
    done = 0
    while done < len(memory):
        count = connection.recv_into(memory[done : done + _PIECE])
        if not count:
            return False
        done += count
    return True
