import asyncio
import json
import re
import signal
import sys

import pytest
import torch
from torch import nn

from disttrain.errors import Interruption, RetryableError
from disttrain.task import user_code
from disttrain.task.errors import UserCodeError


def files(text: str) -> set[str]:
    return set(re.findall(r'File "(.*?)"', text))


def users_forward(layer: nn.Module) -> None:
    layer(torch.zeros(1, 3))


def test_what_raises_nothing_passes() -> None:
    with user_code.running("Digits.loss()"):
        value = 3
    assert value == 3


def test_frames_of_packages_are_left_out() -> None:
    with pytest.raises(UserCodeError) as caught, user_code.running("Digits.loss()"):
        users_forward(nn.Linear(2, 2))
    text = str(caught.value)
    assert text.startswith("Digits.loss() raised RuntimeError:\n")
    assert files(text) == {__file__}
    assert "in users_forward" in text
    assert "mat1 and mat2 shapes cannot be multiplied" in text


def test_what_cannot_be_printed_in_an_error_is_escaped() -> None:
    with pytest.raises(UserCodeError) as caught, user_code.running("Digits.loss()"):
        raise ValueError(chr(27) + "[2J" + chr(0xD800))
    assert str(caught.value).endswith(r"ValueError: \x1b[2J\ud800")


def test_an_exit_is_an_error() -> None:
    with pytest.raises(UserCodeError) as caught, user_code.running("importing 'digits'"):
        sys.exit(0)
    text = str(caught.value)
    assert text.startswith("importing 'digits' raised SystemExit:\n")
    assert "sys.exit(0)" in text


def test_the_errors_behind_an_error_are_shortened_too() -> None:
    def read() -> None:
        try:
            json.loads("{")
        except ValueError as error:
            message = "no settings"
            raise KeyError(message) from error

    with pytest.raises(UserCodeError) as caught, user_code.running("Digits.dataset('train')"):
        read()
    text = str(caught.value)
    assert "JSONDecodeError" in text
    assert "KeyError: 'no settings'" in text
    assert files(text) == {__file__}


def test_an_error_without_a_frame_of_the_user_keeps_the_last_one() -> None:
    with pytest.raises(ValueError, match="property name") as caught:
        json.loads("{")
    without_ours = caught.value.with_traceback(caught.tb.tb_next)
    assert files(user_code.shortened(without_ours)) == {json.decoder.__file__}


def test_an_error_without_any_frame_is_its_message() -> None:
    assert user_code.shortened(RecursionError("deep")) == "RecursionError: deep"


def test_errors_of_ours_pass_unchanged() -> None:
    ours = RetryableError("later")
    with pytest.raises(RetryableError) as caught, user_code.running("Digits.loss()"):
        raise ours
    assert caught.value is ours


@pytest.mark.parametrize("kind", [GeneratorExit, asyncio.CancelledError, BaseException])
def test_what_is_no_exception_is_an_error_too(kind: type[BaseException]) -> None:
    with pytest.raises(UserCodeError) as caught, user_code.running("Digits.loss()"):
        raise kind
    assert str(caught.value).startswith(f"Digits.loss() raised {kind.__name__}:\n")


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_an_interrupt_is_the_tasks_own_where_no_signal_raises_it(handler: signal.Handlers) -> None:
    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(UserCodeError, match="raised KeyboardInterrupt"):
            _raise_an_interrupt()
    finally:
        signal.signal(signal.SIGINT, before)


def _raise_an_interrupt() -> None:
    with user_code.running("Digits.loss()"):
        raise KeyboardInterrupt


def test_an_interrupt_by_a_person_is_no_error_of_the_task() -> None:
    with pytest.raises(KeyboardInterrupt), user_code.running("Digits.loss()"):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/home/somebody/digits.py", True),
        (json.__file__, False),
        (torch.__file__, False),
        (user_code.__file__, False),
        ("/usr/lib/python3/dist-packages/yaml/__init__.py", False),
        ("<frozen importlib._bootstrap>", False),
        ("<string>", False),
    ],
)
def test_whose_file_it_is(file: str, expected: bool) -> None:  # noqa: FBT001 - A column of the table.
    assert user_code.is_of_the_user(file) is expected


def test_the_end_of_a_wait_is_no_mistake_of_the_task() -> None:
    with pytest.raises(Interruption), user_code.running("Digits.loss()"):
        raise Interruption
