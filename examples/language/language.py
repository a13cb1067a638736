"""A small decoder-only transformer on the bytes of any text: which byte comes next?"""

import math
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

import disttrain
from disttrain import Batch, Split, TextBlocks

HERE = Path(__file__).parent
BYTES = 256


class Language(disttrain.Task):
    """`text` is a file, or a folder whose *.txt and *.md files are read in order of their names.

    It is relative to this file. The last tenth of the text is for tests. A sample is a window of
    `context` bytes, each with the byte that follows it; windows do not overlap.

    `stream` is for a text that memory does not hold: such a folder, relative to this file, or a uri
    of an object store. It is read in order, and its last file is for tests.
    """

    def __init__(
        self,
        text: str = "../data/shakespeare-sample.txt",
        *,
        stream: str | None = None,
        context: int = 64,
        width: int = 64,
        layers: int = 2,
        heads: int = 4,
    ) -> None:
        self.path = HERE / text
        self.stream = stream if stream is None or "://" in stream else str(HERE / stream)
        self.context, self.width, self.layers, self.heads = context, width, layers, heads

    def model(self) -> nn.Module:
        return Transformer(self.context, self.width, self.layers, self.heads)

    def dataset(self, split: Split) -> Dataset[tuple[Tensor, Tensor]]:
        if self.stream is not None:
            return Stream(self.stream, self.context, is_test=split == Split.TEST)
        first_of_test = len(self.text) * 9 // 10
        is_test = split == Split.TEST
        return Windows(
            self.text[first_of_test:] if is_test else self.text[:first_of_test], self.context
        )

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Nats per byte; e to the power of it is the perplexity per byte."""
        given, following = batch
        return functional.cross_entropy(model(given).flatten(0, 1), following.flatten().long())

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        given, following = batch
        scores = model(given)
        nats = functional.cross_entropy(
            scores.flatten(0, 1), following.flatten().long(), reduction="sum"
        )
        right = (scores.argmax(dim=-1) == following).sum()
        return {
            "accuracy": right / self.context,
            "bits_per_byte": nats / math.log(2) / self.context,
        }

    @cached_property
    def text(self) -> Tensor:
        """All bytes of it."""
        files = [self.path]
        if self.path.is_dir():
            files = sorted(file for file in self.path.iterdir() if file.suffix in {".txt", ".md"})
        found = b"".join(file.read_bytes() for file in files)
        if len(found) < 20 * (self.context + 1):
            message = (
                f"text: {self.path} has {len(found)} bytes in {len(files)} files; give a text, or "
                f"a folder of *.txt or *.md files, of at least {20 * (self.context + 1)} bytes"
            )
            raise ValueError(message)
        return torch.frombuffer(bytearray(found), dtype=torch.uint8)


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """A window of the text, and the same one byte later; a batch is taken with one indexing."""

    def __init__(self, text: Tensor, context: int) -> None:
        count = (len(text) - 1) // context
        self.given = text[: count * context].view(count, context)
        self.following = text[1 : count * context + 1].view(count, context)

    def __len__(self) -> int:
        return len(self.given)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.given[index], self.following[index]

    def __getitems__(self, indices: list[int]) -> list[tuple[Tensor, Tensor]]:
        return list(zip(self.given[indices], self.following[indices], strict=True))


class Stream(TextBlocks):
    """Windows of files, each read in order; what is left at a file's end is left out."""

    def __init__(self, place: str, context: int, *, is_test: bool) -> None:
        files = slice(-1, None) if is_test else slice(-1)
        super().__init__(place, context + 1, suffixes=(".txt", ".md"), files=files)

    def read(self, source: int, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        for block in super().read(source, first):
            yield block[:-1], block[1:]


class Transformer(nn.Module):
    """Normalised before each part, as GPT-2."""

    def __init__(self, context: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(BYTES, width)
        self.places = nn.Parameter(torch.zeros(context, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, BYTES)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, given: Tensor) -> Tensor:
        """Scores (samples, context, 256) for bytes (samples, context)."""
        found = self.bytes(given.int()) + self.places[: given.shape[1]]
        return self.scores(self.norm(self.blocks(found)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention to what came before, then two layers for each place."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attended, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, found: Tensor) -> Tensor:
        """As long and as wide as it is given."""
        samples, places, width = found.shape
        parts = self.attended(self.attention_norm(found)).view(samples, places, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        found = found + self.joined(seen.transpose(1, 2).reshape(samples, places, width))
        return found + self.layers(self.norm(found))  # type: ignore[no-any-return]
