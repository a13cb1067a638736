"""When an upload to one shard is over."""

from typing import Any, cast

from disttrain.parameter_server.client import UploadTask
from disttrain.parameter_server.conversation import Identity
from disttrain.transport.header import EMPTY, Verb
from disttrain.transport.interface import Message


def test_an_answer_to_an_earlier_upload_ends_none() -> None:
    task = UploadTask(cast(Any, object()), Identity(0, 1), 2, {})
    answer = EMPTY._replace(verb=Verb.UPLOADED, sequence=1)
    task.take(Message(answer, memoryview(b"")))
    assert not task.is_done
    task.take(Message(answer._replace(sequence=2), memoryview(b"")))
    assert task.is_done
