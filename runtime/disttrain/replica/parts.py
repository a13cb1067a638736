"""Which samples of a batch are whose: one rule for who reads them and who computes with them."""

from typing import Final, NamedTuple


class Part(NamedTuple):
    """What one of several ranks computes of each batch."""

    rank: int
    ranks: int

    def bounds(self, samples: int) -> tuple[int, int]:
        """First and end of its samples; they are equal where there are none.

        Parts differ by one sample at most, and the first rank's is a largest one.
        """
        first, end = (-(-samples * rank // self.ranks) for rank in (self.rank, self.rank + 1))
        return first, end


WHOLE: Final = Part(0, 1)
