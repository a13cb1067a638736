"""A push adds exactly 1 to known coordinates, so that lost and doubled pushes show in the sums.

The shards have no coordinator: without its journal and summary `disttrain audit` has nothing to
hold their ledgers against. Whole jobs whose shards are killed are audited in test_faults.py.
"""

import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from builders import placements
from builders.replicas import Replica, replica
from builders.shard_process import JOB, ShardPlan, ShardProcess, running, start
from builders.transports import a_config
from disttrain.coordinator.protocol.messages import ShardAddress
from disttrain.launch import linux
from disttrain.parameter_server.client import Push
from disttrain.parameter_server.conversation import Identity
from disttrain.parameter_server.errors import Fenced, PushRefused
from disttrain.parameter_server.messages import ACKNOWLEDGE_EVERY
from disttrain.state.placement import TRAINED
from disttrain.transport.config import TransportKind
from disttrain.transport.factory import open_transport
from disttrain.transport.header import ElementType, Header, Reason, Role, Verb
from disttrain.transport.interface import Slice

KINDS = list(TransportKind)
ELEMENTS = 40_000
CHUNK_BYTES = 16 << 10
CHUNK = CHUNK_BYTES // 4
TOTAL = {placements.PARAMETERS: ELEMENTS}
PATIENCE = 120.0


def a_plan(kind: TransportKind, folder: Path, **more: object) -> ShardPlan:
    fields: dict[str, object] = {
        "kind": kind,
        "address": "tcp://127.0.0.1:0" if kind is TransportKind.TCP else f"ipc://{folder}/s",
        "elements": TOTAL,
        "optimizer": {"sgd": {"learning_rate": 1.0}},
        "chunk_bytes": CHUNK_BYTES,
    }
    return ShardPlan(**(fields | more))  # type: ignore[arg-type]


def upload_zeros(one: Replica, elements: int = ELEMENTS) -> None:
    one.pushes.upload({placements.PARAMETERS: one.buffer(torch.zeros(elements))}, [0])


def one_everywhere(one: Replica, sequence: int) -> Push:
    return Push(sequence=sequence, gradient=one.buffer(torch.full((ELEMENTS,), -1.0)))


def chunk_header(identity: Identity, sequence: int, chunk: int, elements: int = ELEMENTS) -> Header:
    first = chunk * CHUNK
    return identity.header(Verb.PUSH)._replace(
        receiver_incarnation=1,
        sequence=sequence,
        vector=TRAINED,
        element_type=ElementType.FLOAT32,
        chunk=chunk,
        chunks=-(-elements // CHUNK),
        first=first,
        count=min(CHUNK, elements - first),
        scale=1.0,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_doubled_and_reordered_chunks_count_once(kind: TransportKind, tmp_path: Path) -> None:
    """Beside each push, the same and other chunks come over a second connection, in any order."""
    chance = random.Random(1)
    with running([a_plan(kind, tmp_path)]) as shards, replica(kind, shards) as one:
        upload_zeros(one)
        other = one.transport.connect(shards[0].address, Role.SHARD)
        gradient = one.buffer(torch.full((ELEMENTS,), -1.0))
        for sequence in range(1, 21):
            for _ in range(8):
                chunk = chance.randrange(-(-ELEMENTS // CHUNK))
                header = chunk_header(one.identity, chance.randint(1, sequence), chunk)
                part = Slice(gradient, header.first * 4, header.count * 4)
                other.send(header, part)
            one.pushes.push(Push(sequence=sequence, gradient=gradient))
        drain(other.receive)
        after = one.fetch(TOTAL)[placements.PARAMETERS]
    assert torch.equal(after, torch.full((ELEMENTS,), 20.0))


@pytest.mark.parametrize("kind", KINDS)
def test_a_push_goes_on_where_it_was_interrupted(kind: TransportKind, tmp_path: Path) -> None:
    with running([a_plan(kind, tmp_path)]) as shards, replica(kind, shards) as one:
        upload_zeros(one)
        other = one.transport.connect(shards[0].address, Role.SHARD)
        gradient = one.buffer(torch.full((ELEMENTS,), -1.0))
        for chunk in range(ACKNOWLEDGE_EVERY):
            header = chunk_header(one.identity, 1, chunk)
            other.send(header, Slice(gradient, header.first * 4, header.count * 4))
        answer = other.receive(10.0)
        assert answer is not None
        assert (answer.header.verb, answer.header.chunk) == (Verb.PUSHED, ACKNOWLEDGE_EVERY - 1)
        one.pushes.push(Push(sequence=1, gradient=gradient))
        after = one.fetch(TOTAL)[placements.PARAMETERS]
    assert torch.equal(after, torch.ones(ELEMENTS))


@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_killed_in_the_middle_is_waited_for(kind: TransportKind, tmp_path: Path) -> None:
    """A new incarnation has no values: they are uploaded again, the push comes from its start."""
    first = start(a_plan(kind, tmp_path))
    entries = [first.directory_entry]
    second: list[ShardProcess] = []
    try:
        with replica(kind, [first], directory=lambda: list(entries)) as one:
            upload_zeros(one)
            one.pushes.push(one_everywhere(one, 1))
            first.kill()
            pushing = threading.Thread(target=one.pushes.push, args=(one_everywhere(one, 2),))
            pushing.start()
            pushing.join(0.2)
            assert pushing.is_alive()
            address = "tcp://127.0.0.1:0" if kind is TransportKind.TCP else f"ipc://{tmp_path}/t"
            second.append(start(a_plan(kind, tmp_path, incarnation=2, address=address)))
            entries[:] = [second[0].directory_entry]
            with replica(kind, second) as uploader:
                upload_zeros(uploader)
            pushing.join(PATIENCE)
            assert not pushing.is_alive()
            after = one.fetch(TOTAL)[placements.PARAMETERS]
        assert torch.equal(after, torch.ones(ELEMENTS))
    finally:
        for shard in (first, *second):
            shard.kill()


@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_that_is_stopped_for_long_applies_everything_once(
    kind: TransportKind, tmp_path: Path
) -> None:
    """It is greeted again meanwhile, over a new connection at last."""
    with running([a_plan(kind, tmp_path)]) as shards, replica(kind, shards) as one:
        upload_zeros(one)
        one.pushes.push(one_everywhere(one, 1))
        shards[0].signal(signal.SIGSTOP)
        pushing = threading.Thread(target=one.pushes.push, args=(one_everywhere(one, 2),))
        pushing.start()
        pushing.join(4.5)
        assert pushing.is_alive()
        shards[0].signal(signal.SIGCONT)
        pushing.join(PATIENCE)
        assert not pushing.is_alive()
        after = one.fetch(TOTAL)[placements.PARAMETERS]
    assert torch.equal(after, torch.full((ELEMENTS,), 2.0))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_killed_in_the_middle_leaves_whole_chunks(
    kind: TransportKind, seed: int, tmp_path: Path
) -> None:
    elements = 4_000_000
    size = {placements.PARAMETERS: elements}
    plan = a_plan(kind, tmp_path, elements=size, senders=[(0, 1), (1, 1)], chunk_bytes=64 << 10)
    with running([plan]) as shards:
        parent, child = os.getpid(), os.fork()
        if child == 0:
            linux.end_with_parent(parent, signal.SIGKILL)
            push_for_ever(kind, shards, elements)
        with replica(kind, shards, index=1) as one:
            while float(one.fetch(size)[placements.PARAMETERS][0]) < 1:
                pass
            time.sleep(random.Random(seed).random() * 0.05)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            one.pushes.push(Push(sequence=1, gradient=one.buffer(torch.full((elements,), -0.5))))
            after = one.fetch(size)[placements.PARAMETERS] - 0.5
    size_of_chunk = (64 << 10) // 4
    chunks = [after[i : i + size_of_chunk] for i in range(0, elements, size_of_chunk)]
    values = [float(chunk[0]) for chunk in chunks]
    assert all(bool((chunk == chunk[0]).all()) for chunk in chunks), "a chunk was applied in part"
    assert sorted(values, reverse=True) == values, "a later chunk is ahead of an earlier one"
    assert values[0] - values[-1] <= 1, "a push was applied twice or skipped"


def push_for_ever(kind: TransportKind, shards: list[ShardProcess], elements: int) -> None:
    # The parent's pool of threads does not exist here: a parallel operation would wait for it.
    torch.set_num_threads(1)
    with replica(kind, shards) as one:
        upload_zeros(one, elements)
        gradient = one.buffer(torch.full((elements,), -1.0))
        for sequence in range(1, 1 << 30):
            one.pushes.push(Push(sequence=sequence, gradient=gradient))


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_with_a_nan_is_refused_and_the_next_one_is_taken(
    kind: TransportKind, tmp_path: Path
) -> None:
    bad = torch.full((ELEMENTS,), -1.0)
    bad[CHUNK + 5] = float("nan")
    with running([a_plan(kind, tmp_path)]) as shards, replica(kind, shards) as one:
        upload_zeros(one)
        with pytest.raises(PushRefused, match="not finite"):
            one.pushes.push(Push(sequence=1, gradient=one.buffer(bad)))
        one.pushes.push(one_everywhere(one, 2))
        after = one.fetch(TOTAL)[placements.PARAMETERS]
    assert torch.equal(after[:CHUNK], torch.full((CHUNK,), 2.0))
    assert torch.equal(after[CHUNK:], torch.ones(ELEMENTS - CHUNK))


@pytest.mark.parametrize("kind", KINDS)
def test_an_old_incarnation_is_refused(kind: TransportKind, tmp_path: Path) -> None:
    plan = a_plan(kind, tmp_path, senders=[(0, 2)])
    with running([plan]) as shards, replica(kind, shards, incarnation=2) as new:
        upload_zeros(new)
        with replica(kind, shards, incarnation=1) as old:
            with pytest.raises(Fenced):
                old.pushes.push(one_everywhere(old, 1))
            with pytest.raises(Fenced):
                old.fetch(TOTAL)
        assert torch.equal(new.fetch(TOTAL)[placements.PARAMETERS], torch.zeros(ELEMENTS))


def test_random_bytes_and_half_open_connections_do_not_matter(tmp_path: Path) -> None:
    kind = TransportKind.TCP
    chance = random.Random(7)
    with running([a_plan(kind, tmp_path)]) as shards, replica(kind, shards) as one:
        upload_zeros(one)
        host, port = shards[0].address.removeprefix("tcp://").split(":")
        strangers = [socket.create_connection((host, int(port))) for _ in range(10)]
        for stranger in strangers[:8]:
            stranger.sendall(chance.randbytes(chance.randrange(1, 5000)))
        one.pushes.push(one_everywhere(one, 1))
        after = one.fetch(TOTAL)[placements.PARAMETERS]
        for stranger in strangers:
            stranger.close()
    assert torch.equal(after, torch.ones(ELEMENTS))


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h._replace(first=h.first + 1),
        lambda h: h._replace(vector=2),
        lambda h: h._replace(vector=255),
        lambda h: h._replace(first=1 << 40),
        lambda h: h._replace(chunks=1),
    ],
)
def test_chunks_of_another_layout_are_refused(
    change: Callable[[Header], Header], tmp_path: Path
) -> None:
    kind = TransportKind.TCP
    with running([a_plan(kind, tmp_path)]) as shards, replica(kind, shards) as one:
        upload_zeros(one)
        transport = open_transport(a_config(kind, job_uid=JOB, role=Role.REPLICA))
        channel = transport.connect(shards[0].address, Role.SHARD)
        header = change(chunk_header(one.identity, 1, 0))
        channel.send(header, bytes(header.count * 4))
        answer = channel.receive(10.0)
        assert answer is not None
        assert answer.header.reason == Reason.WRONG_LAYOUT
        transport.close()
        one.pushes.push(one_everywhere(one, 1))
        assert torch.equal(one.fetch(TOTAL)[placements.PARAMETERS], torch.ones(ELEMENTS))


def drain(receive: Callable[[float], object]) -> None:
    while receive(0.2) is not None:
        pass


def test_a_directory_may_name_the_shards_late(tmp_path: Path) -> None:
    kind = TransportKind.TCP
    with running([a_plan(kind, tmp_path)]) as shards:
        entries: list[ShardAddress] = []
        asked: list[int] = []

        def asked_again_and_again() -> list[ShardAddress]:
            asked.append(len(entries))
            if len(asked) == 3:
                entries.append(shards[0].directory_entry)
            return list(entries)

        with replica(kind, shards, directory=asked_again_and_again) as one:
            upload_zeros(one)
            one.pushes.push(one_everywhere(one, 1))
            after = one.fetch(TOTAL)[placements.PARAMETERS]
    assert asked[:4] == [0, 0, 0, 1]
    assert torch.equal(after, torch.ones(ELEMENTS))
