import io
import wave

import pytest
import torch
from recordings import TEST_TAKES, Recording, decode
from torch import Tensor
from windows import Windows, states

from disttrain import Split
from speech import Speech, sigmoid_network


@pytest.fixture(scope="module")
def task() -> Speech:
    return Speech(layers=2, width=64, states_per_digit=3)


def a_recording(frames: int, *, digit: int = 0, speaker: str = "theo", take: int = 0) -> Recording:
    """Frame i of the recording has the energies 100 digit + i."""
    energies = (100.0 * digit + torch.arange(frames, dtype=torch.float32))[:, None].expand(-1, 40)
    return Recording(digit=digit, speaker=speaker, take=take, energies=energies)


def a_wav(samples: list[int], *, channels: int = 1, width: int = 2) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(width)
        sound.setframerate(8000)
        sound.writeframes(b"".join(each.to_bytes(2, "little", signed=True) for each in samples))
    return file.getvalue()


def first_of_each_frame(window: Tensor) -> list[float]:
    values: list[float] = window.reshape(11, 40)[:, 0].tolist()
    return values


def test_a_wav_file_becomes_numbers_between_minus_one_and_one() -> None:
    sound, rate = decode(a_wav([0, 16384, -32768]))
    assert sound.tolist() == [0, 0.5, -1]
    assert rate == 8000


@pytest.mark.parametrize(("channels", "width"), [(2, 2), (1, 1)])
def test_other_wav_files_are_refused(channels: int, width: int) -> None:
    with pytest.raises(ValueError, match="expected a WAV file of one channel and 16 bits, got"):
        decode(a_wav([0, 0], channels=channels, width=width))


def test_a_window_holds_five_frames_on_either_side() -> None:
    windows = Windows([a_recording(20), a_recording(15, digit=1)], states_per_digit=3)
    assert len(windows) == 35
    assert first_of_each_frame(windows[7][0]) == list(range(2, 13))
    assert first_of_each_frame(windows[20 + 7][0]) == list(range(102, 113))


def test_windows_at_the_ends_repeat_the_outer_frame_of_their_own_recording() -> None:
    windows = Windows([a_recording(20), a_recording(15, digit=1)], states_per_digit=3)
    assert first_of_each_frame(windows[0][0]) == [0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5]
    assert first_of_each_frame(windows[19][0]) == [14, 15, 16, 17, 18, 19, 19, 19, 19, 19, 19]
    assert first_of_each_frame(windows[20][0]) == [100] * 6 + [101, 102, 103, 104, 105]


def test_windows_are_views_of_the_frames() -> None:
    windows = Windows([a_recording(20)], states_per_digit=3)
    assert windows.windows.untyped_storage().data_ptr() == windows.frames.data_ptr()
    assert windows.frames.shape == (30, 40)


def test_the_states_of_a_digit_are_equal_parts_of_its_time() -> None:
    assert states(a_recording(6, digit=2), 3).tolist() == [6, 6, 7, 7, 8, 8]
    assert states(a_recording(7, digit=0), 3).bincount().tolist() == [3, 2, 2]


def test_the_usual_test_takes_are_held_out(task: Speech) -> None:
    train, test = task.windows["train"], task.windows["test"]
    assert len(train) > len(test) > 1000
    assert set(train.states.tolist()) == set(test.states.tolist()) == set(range(30))
    assert list(TEST_TAKES) == [0, 1, 2, 3, 4]


def test_whole_speakers_can_be_held_out() -> None:
    task = Speech(test_speakers=["theo"])
    assert task.is_test(a_recording(9, speaker="theo", take=7))
    assert not task.is_test(a_recording(9, speaker="george", take=0))
    assert len(task.windows["train"]) > len(task.windows["test"]) > 1000


def test_an_unknown_speaker_is_refused_with_the_known_ones() -> None:
    task = Speech(test_speakers=["thea"])
    with pytest.raises(ValueError, match=r"has \['george', 'jackson', 'theo'\], got \['thea'\]"):
        task.dataset(Split.TRAIN)


def test_training_frames_have_mean_zero_and_deviation_one(task: Speech) -> None:
    frames = task.windows["train"].frames
    torch.testing.assert_close(frames.mean(dim=0), torch.zeros(40), atol=1e-4, rtol=0)
    torch.testing.assert_close(frames.std(dim=0), torch.ones(40), atol=1e-4, rtol=0)


def test_a_batch_holds_the_windows_that_were_asked_for(task: Speech) -> None:
    dataset = task.windows["train"]
    windows, labels = dataset.__getitems__([7, 0, 3])
    assert windows.shape == (3, 440)
    for row, index in enumerate([7, 0, 3]):
        assert torch.equal(windows[row], dataset[index][0])
        assert labels[row] == dataset[index][1]


def test_the_default_network_is_that_of_the_paper() -> None:
    with torch.device("meta"):
        network = sigmoid_network([440, 2560, 2560, 2560, 2560, 8192])
    parameters = sum(value.numel() for value in network.parameters())
    assert 41_000_000 < parameters < 43_000_000


def test_signals_keep_their_strength_through_sigmoid_layers() -> None:
    torch.manual_seed(0)
    network = sigmoid_network([440, 256, 256, 256, 256, 50])
    signals = torch.randn(500, 440)
    for number, layer in enumerate(network):
        signals = layer(signals).detach()
        if number in {2, 4, 6}:
            assert 0.5 < float(signals.std(dim=0).mean()) < 1.5
            assert float(signals.mean(dim=0).abs().mean()) < 0.5


def test_a_right_digit_in_the_wrong_state_counts_as_digit_alone(task: Speech) -> None:
    scores = torch.eye(30)[[4, 4, 4]]
    measured = task.measure(torch.nn.Identity(), (scores, torch.tensor([4, 5, 6])))
    assert measured["accuracy"] == 1
    assert measured["digit"] == 2
