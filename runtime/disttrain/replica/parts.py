"""Which samples of a batch are whose: one rule for who reads them and who computes with them."""

from typing import Final, NamedTuple


class Part(NamedTuple):
    """What one of several ranks computes of each batch."""

    rank: int
    ranks: int
    always_computes: bool = False
    """Where there is no sample for it, it computes the first one, which counts nothing there."""

    def bounds(self, samples: int) -> tuple[int, int]:
        """First and end of what it reads and computes; they are equal where that is nothing.

        Parts differ by one sample at most, and the first rank's is a largest one.
        """
        first, end = self._bounds(samples)
        return (0, 1) if first == end and self.always_computes else (first, end)

    def counted(self, samples: int) -> int:
        """Of the samples that it computes."""
        first, end = self._bounds(samples)
        return end - first

    def _bounds(self, samples: int) -> tuple[int, int]:
        first, end = (-(-samples * rank // self.ranks) for rank in (self.rank, self.rank + 1))
        return first, end


WHOLE: Final = Part(0, 1)
