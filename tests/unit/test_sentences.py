"""Sentences of the documents and the examples' READMEs are short.

A word stands between spaces; `code` is one word, whatever is in it. Code blocks, tables and
headings have no sentences. Generated pages are left out.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[2]
GENERATED: Final = {"docs/methods/figures.md", "docs/methods/replicas.md"}
DOCUMENTS = [
    path
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/[dm]*/*.md")])
    + sorted(ROOT.glob("examples/**/README.md"))
    if str(path.relative_to(ROOT)) not in GENERATED
]
LONG: Final = 25
MOST: Final = 40
SHARE_OF_LONG: Final = 0.05

_BLOCK = re.compile(r"^( *)```.*?^ *```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^ {4}\S.*\n)+", re.MULTILINE)
_CODE = re.compile(r"``.+?``|`[^`]+`", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) +")
_END = re.compile(r"(?<=[.!?])[\"*)]*\s+(?=[\"*(]*[A-Z0-9_])")


def paragraphs(text: str) -> Iterator[str]:
    """Items of lists are paragraphs of their own."""
    text = _BLOCK.sub("\n\n", text)
    text = _LINK.sub(r"\1", _CODE.sub("CODE", text))
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        is_text = bool(line.strip()) and not line.lstrip().startswith(("|", "#", "!", "<!--"))
        if not is_text or _ITEM.match(line):
            yield " ".join(lines)
            lines = []
        if is_text:
            lines.append(_ITEM.sub("", line).strip())


def sentences(text: str) -> list[str]:
    found = (each for paragraph in paragraphs(text) for each in _END.split(paragraph))
    return [each for each in found if re.search(r"\w", each)]


def words(sentence: str) -> int:
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def test_sentences_are_told_apart() -> None:
    text = "# Not this one\n\nA b, `c d e`. F [g h](i.md)!\n\n- J k\n  l.\n- M.\n\n| n | o |\n"
    text += "\n```sh\n$ p q\n```\nR e.g. s."
    found = [(each, words(each)) for each in sentences(text)]
    assert found == [
        ("A b, CODE.", 3),
        ("F g h!", 3),
        ("J k l.", 3),
        ("M.", 1),
        ("R e.g. s.", 3),
    ]


def test_few_sentences_are_long_and_none_is_very_long() -> None:
    lengths = {
        f"{path.relative_to(ROOT)}: {each}": words(each)
        for path in DOCUMENTS
        for each in sentences(path.read_text())
    }
    assert len(lengths) > 300
    assert [each for each, length in lengths.items() if length > MOST] == []
    long = [each for each, length in lengths.items() if length > LONG]
    assert len(long) <= SHARE_OF_LONG * len(lengths), "\n".join(long)
