"""What a task is asked for is checked before anything is done with it."""

import pytest

from disttrain import Split
from disttrain.replica.task_calls import TaskCalls
from disttrain.task.errors import DatasetError
from tasks.counting import StreamingOneWay


@pytest.mark.parametrize("kind", ["plain", "sources"])
def test_a_stream_that_cannot_begin_in_its_midst_is_refused(kind: str) -> None:
    with pytest.raises(DatasetError, match=r"^spec\.task\.entrypoint: Task\.dataset\('train'\) "):
        TaskCalls(StreamingOneWay(kind)).examples(Split.TRAIN, batch_size=8)
