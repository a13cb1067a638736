"""The generated files: current, complete, and checked."""

import re
from enum import StrEnum
from pathlib import Path

import pytest

from disttrain.job import fields
from disttrain.job.finding import Path as ManifestPath
from disttrain_generators import enum_values, generated_files
from disttrain_generators.reference_page import page

ROOT = Path(__file__).parents[3]


def every_field(around: ManifestPath = ()) -> list[ManifestPath]:
    section = fields.section_at(around)
    paths = [(*around, name) for name in fields.by_name(section)] if section else []
    return paths + [inner for path in paths for inner in every_field(path)]


def test_the_committed_files_are_current() -> None:
    assert generated_files.stale_files(ROOT) == []


def test_every_field_of_the_manifest_is_on_the_page() -> None:
    text = page()
    paths = every_field()
    assert len(paths) > 60
    assert [path for path in paths if f"| `{path[-1]}` |" not in text] == []


def test_links_lead_to_headings() -> None:
    text = page()
    headings = {title.replace(".", "").lower() for title in re.findall("^## (.*)$", text, re.M)}
    links = {link.split(")")[0] for link in text.split("](#")[1:]}
    assert links <= headings


@pytest.mark.parametrize("enum", enum_values.ENUMS)
def test_every_value_of_an_enum_has_a_meaning(enum: type[StrEnum]) -> None:
    assert list(enum_values.meanings(enum)) == [member.value for member in enum]


def test_writing_makes_the_files_current(tmp_path: Path) -> None:
    assert generated_files.main([str(tmp_path / "made"), "--check"]) == 1
    assert generated_files.main([str(tmp_path / "made")]) == 0
    assert generated_files.main([str(tmp_path / "made"), "--check"]) == 0


def test_a_changed_file_is_named_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generated_files.main([str(tmp_path)])
    manifest = tmp_path / "docs" / "reference" / "manifest.md"
    manifest.write_text("changed")
    assert generated_files.main([str(tmp_path), "--check"]) == 1
    expected = f"{manifest}: not current; run `make generate` and commit the result"
    assert capsys.readouterr().err.strip() == expected
