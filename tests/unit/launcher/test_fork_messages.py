"""Messages of the launcher and the fork server are told apart by their fields alone."""

import pytest
from pydantic import ValidationError

from disttrain.launcher import fork_messages
from disttrain.launcher.fork_messages import Ended, Preload, Preloaded, Ready, Start, Started


@pytest.mark.parametrize(
    "event",
    [
        Ready(threads=1),
        Preloaded(threads=1, error=""),
        Started(name="shard-0", pid=7),
        Ended(name="shard-0", pid=7, code=0),
    ],
)
def test_an_event_is_read_as_what_it_is(event: fork_messages.Event) -> None:
    assert fork_messages.EVENTS.validate_json(fork_messages.EVENTS.dump_json(event)) == event


@pytest.mark.parametrize(
    "command", [Start(name="shard-0", config="a", log="b"), Preload(module="digits", folder="c")]
)
def test_a_command_is_read_as_what_it_is(command: fork_messages.Command) -> None:
    text = fork_messages.COMMANDS.dump_json(command)
    assert fork_messages.COMMANDS.validate_json(text) == command


def test_what_has_other_fields_is_no_message() -> None:
    with pytest.raises(ValidationError):
        fork_messages.EVENTS.validate_json('{"name": "shard-0", "pid": 7, "exit": 0}')
