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
import zmq
from torch import Tensor

from builders import placements
from builders.replicas import replica, tensor
from builders.shard_process import ShardProcess
from disttrain.parameter_server import client, fetching
from disttrain.parameter_server.client import Push, Version
from disttrain.parameter_server.narrowing import narrow_gradient
from disttrain.transport.config import TransportKind
from disttrain.transport.header import ElementType
from disttrain.transport.tcp import TcpTransport

_PIECE = 1 << 20
_CHUNK = TcpTransport.chunk_bytes
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
        into = {placements.PARAMETERS: one.buffer(torch.randn(elements))}
        one.pushes.upload(into, range(len(shards)))
        numbers = iter(range(1, 1 << 40))

        def one_round() -> None:
            versions = [Version(1, 0)] * len(shards)
            one.pushes.push(Push(sequence=next(numbers), gradient=gradient, versions=versions))
            one.fetches.fetch(into)

        serve_rounds(pipe, one_round)


def narrow_worker(
    pipe: Connection,
    kind: TransportKind,
    shards: Sequence[ShardProcess],
    sender: tuple[int, int],
    elements: int,
) -> None:
    """The same in half of the bytes; what a replica rounds and widens is done, too."""
    torch.set_num_threads(1)
    vector = placements.PARAMETERS.narrow
    with replica(kind, shards, sender[0], sender[1]) as one:
        computed = torch.randn(elements) * 0.01
        initial = {placements.PARAMETERS: one.buffer(torch.randn(elements))}
        one.pushes.upload(initial, range(len(shards)))
        gradient, into = (one.empty(vector, elements) for _ in range(2))
        numbers = iter(range(1, 1 << 40))

        def one_round() -> None:
            narrow_gradient(computed, tensor(gradient, vector))
            versions = [Version(1, 0)] * len(shards)
            one.pushes.push(
                Push(
                    sequence=next(numbers),
                    gradient=gradient,
                    rounded_to=ElementType.BFLOAT16,
                    versions=versions,
                )
            )
            one.fetches.fetch({vector: into})
            tensor(initial[placements.PARAMETERS], placements.PARAMETERS).copy_(
                tensor(into, vector)
            )

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


CurvePair = tuple[bytes, bytes]
"""Public and secret key, which both ends of a bare connection have."""


def bare_shard(port: int, elements: int, keys: CurvePair | None) -> None:
    """Over pyzmq, the work of a shard and nothing else: no header, no table, no limits, one peer.

    Finiteness, Adagrad and a copying fetch, so that the rest is what DistTrain adds.
    """
    torch.set_num_threads(1)
    _RpcShard.parameters, _RpcShard.sums = torch.randn(elements), torch.zeros(elements)
    parameters = _RpcShard.parameters.split(_CHUNK // 4)  # type: ignore[no-untyped-call]
    sums = _RpcShard.sums.split(_CHUNK // 4)  # type: ignore[no-untyped-call]
    socket = zmq.Context().socket(zmq.ROUTER)
    if keys is not None:
        socket.curve_server = True
        socket.curve_secretkey = keys[1]
    socket.bind(f"tcp://127.0.0.1:{port}")
    while True:
        peer, what = socket.recv(), socket.recv()
        number = int.from_bytes(what[1:], "little")
        if what[:1] == b"F":
            values = parameters[number].numpy().data.cast("B")
            socket.send_multipart([peer, b"F", values])
            continue
        payload = socket.recv(copy=False).buffer
        gradient = torch.frombuffer(payload, dtype=torch.float32)
        if torch.dot(gradient, gradient).isfinite():
            _adagrad(parameters[number], gradient, sums[number])
        socket.send_multipart([peer, b"P"])


class _BareReplica:
    """Of `bare_shard`, with as many chunks on their way as ours has."""

    def __init__(self, port: int, elements: int, keys: CurvePair | None) -> None:
        self._socket = zmq.Context().socket(zmq.DEALER)
        if keys is not None:
            self._socket.curve_serverkey = keys[0]
            self._socket.curve_publickey, self._socket.curve_secretkey = keys
        self._socket.connect(f"tcp://127.0.0.1:{port}")
        self._sent = _chunks(torch.randn(elements) * 0.01)
        self._places = _chunks(torch.randn(elements))

    def round(self) -> None:
        """Push all, then fetch all."""
        self._keep_full(client.WINDOW_CHUNKS, self._push, self._pushed)
        self._keep_full(fetching.WINDOW_CHUNKS, self._ask, self._fetched)

    def _keep_full(
        self, window: int, request: Callable[[int], None], answer: Callable[[int], None]
    ) -> None:
        chunks = len(self._sent)
        for number in range(chunks + window):
            if number >= window:
                answer(number - window)
            if number < chunks:
                request(number)

    def _push(self, number: int) -> None:
        self._socket.send(b"P" + number.to_bytes(4, "little"), zmq.SNDMORE)
        self._socket.send(self._sent[number], copy=False)

    def _pushed(self, _number: int) -> None:
        self._socket.recv()

    def _ask(self, number: int) -> None:
        self._socket.send(b"F" + number.to_bytes(4, "little"))

    def _fetched(self, number: int) -> None:
        self._socket.recv()
        self._socket.recv_into(self._places[number])


def bare_worker(pipe: Connection, port: int, elements: int, keys: CurvePair | None) -> None:
    """The other end of `bare_shard`."""
    torch.set_num_threads(1)
    serve_rounds(pipe, _BareReplica(port, elements, keys).round)


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
    """What a shard that is not ours works on: of rpc, of bare pyzmq."""

    parameters: Tensor
    sums: Tensor
    step = torch.zeros(())


def rpc_push(gradient: Tensor) -> None:
    _adagrad(_RpcShard.parameters, gradient, _RpcShard.sums)


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
            _adagrad(parameters, sent, sums)
        for parameters, _, _, place in pieces:
            place.copy_(parameters)

    serve_rounds(pipe, one_round)


def _adagrad(parameters: Tensor, gradient: Tensor, sums: Tensor) -> None:
    torch._fused_adagrad_(
        [parameters],
        [gradient],
        [sums],
        [_RpcShard.step],
        lr=0.01,
        lr_decay=0.0,
        weight_decay=0.0,
        eps=1e-10,
        maximize=False,
    )


def _chunks(vector: Tensor) -> list[memoryview]:
    parts = vector.split(_CHUNK // 4)  # type: ignore[no-untyped-call]
    return [part.numpy().data.cast("B") for part in parts]


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
