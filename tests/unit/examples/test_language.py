import math
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from disttrain import LossContext, Split
from disttrain.job.parsing import parse_job
from disttrain.replica import task_calls
from disttrain.replica.pipeline import read
from language import Language, Stream, Transformer, Windows


@pytest.fixture(scope="module")
def task() -> Language:
    return Language(context=16, width=16, layers=2, heads=2)


def windows(task: Language, split: Split) -> Windows:
    found = task.dataset(split)
    assert isinstance(found, Windows)
    return found


def test_a_sample_is_a_window_and_what_follows_each_of_its_bytes(task: Language) -> None:
    given, following = windows(task, Split.TRAIN)[1]
    assert bytes(given.tolist()) == bytes(task.text[16:32].tolist())
    assert bytes(following.tolist()) == bytes(task.text[17:33].tolist())


def test_several_at_once_are_the_single_ones(task: Language) -> None:
    found = windows(task, Split.TRAIN)
    for (given, following), index in zip(found.__getitems__([5, 3]), [5, 3], strict=True):
        assert torch.equal(given, found[index][0])
        assert torch.equal(following, found[index][1])


def test_the_last_tenth_is_for_tests_and_no_byte_is_in_both(task: Language) -> None:
    train, test = windows(task, Split.TRAIN), windows(task, Split.TEST)
    assert len(test) / (len(train) + len(test)) == pytest.approx(0.1, abs=0.001)
    assert train.following.numel() < len(task.text) * 9 // 10
    begin = task.text[len(task.text) * 9 // 10 :][:16]
    assert torch.equal(test[0][0], begin)


def test_no_score_knows_the_bytes_that_come_later() -> None:
    torch.manual_seed(0)
    model = Transformer(8, 16, 2, 2)
    given = torch.randint(256, (1, 8), dtype=torch.uint8)
    other = given.clone()
    other[0, 5] += 1
    before, after = model(given), model(other)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


def test_what_is_measured_is_the_loss_in_bits_and_the_part_that_is_right(task: Language) -> None:
    torch.manual_seed(0)
    model = task.model()
    batch = windows(task, Split.TEST).given[:4], windows(task, Split.TEST).following[:4]
    with torch.no_grad():
        loss, measures = float(task.loss(model, batch)), task.measure(model, batch)
    assert float(measures["bits_per_byte"]) / 4 == pytest.approx(loss / math.log(2))
    assert loss == pytest.approx(math.log(256), abs=0.3), "it knows nothing yet"
    right = (functional.softmax(model(batch[0]), -1).argmax(-1) == batch[1]).float().mean()
    assert float(measures["accuracy"]) / 4 == pytest.approx(float(right))


def test_a_folders_texts_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(b"b" * 400)
    (tmp_path / "a.txt").write_bytes(b"a" * 400)
    (tmp_path / "c.md").write_bytes(b"c" * 400)
    (tmp_path / "d.py").write_bytes(b"d" * 400)
    read = bytes(Language(str(tmp_path), context=16).text.tolist())
    assert read == b"a" * 400 + b"b" * 400 + b"c" * 400


def test_a_text_that_is_too_short_is_refused_with_its_size(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("short")
    with pytest.raises(ValueError, match=r"has 5 bytes in 1 files; give a text, .* at least 340"):
        Language(str(tmp_path), context=16).dataset(Split.TRAIN)


def test_a_stream_has_the_windows_of_all_files_but_the_last(tmp_path: Path) -> None:
    for name, content in (("a.txt", b"abcdefgh"), ("b.md", b"123456789"), ("c.txt", b"TESTED..")):
        (tmp_path / name).write_bytes(content)
    task = Language(stream=str(tmp_path), context=3)
    train, test = (task.dataset(split) for split in Split)
    assert isinstance(train, Stream)
    assert isinstance(test, Stream)
    shown = [(bytes(given.tolist()), bytes(following.tolist())) for given, following in train]
    assert shown == [(b"abc", b"bcd"), (b"efg", b"fgh"), (b"123", b"234"), (b"567", b"678")]
    assert test.count(0) == 2


def test_the_manifest_of_the_stream_leads_to_data_that_can_be_trained() -> None:
    path = Path(__file__).parents[3] / "examples" / "language" / "job-stream.yaml"
    task = task_calls.load(parse_job(path.read_text(), source=path.name), path.parent)
    train = task.examples(Split.TRAIN, 32)
    assert train.sources
    assert train.count > task.examples(Split.TEST, 32).count
    batch = task.collate(read(train.dataset, list(range(8))))
    loss = task.loss(task.model(0), batch, LossContext())
    assert loss.mean.item() == pytest.approx(math.log(256), abs=0.5)
