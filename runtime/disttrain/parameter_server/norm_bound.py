"""How far a push may move the parameters, whatever its sender says of it. Pure."""

from disttrain.parameter_server.deliveries import SenderIncarnation

ALLOWANCE = 1.1
"""Beyond the bound: what rounding on the way may add, of int8 at worst."""


class NormBound:
    """Adds up the squares of each push's chunks as they come.

    A shard sees its own ranges alone. So each of S shards allows the whole norm, and who lies moves
    the model by up to the root of S times as much.
    """

    def __init__(self, most: float) -> None:
        self.most = most
        self._used: dict[SenderIncarnation, float] = {}
        """Square of the norm of the push under way. Lost with the process, which then allows the
        rest of a push as much again."""

    def takes(self, sender: SenderIncarnation, norm: float, *, is_first: bool) -> bool:
        """Whether a chunk with this norm still fits; `is_first`: its push begins with it."""
        before = 0.0 if is_first else self._used.get(sender, 0.0)
        after = before + norm**2
        fits = after <= (self.most * ALLOWANCE) ** 2
        if fits:
            self._used[sender] = after
        return fits

    def drop(self, incarnation: SenderIncarnation) -> None:
        """Forget this incarnation of a sender and earlier ones."""
        incarnation.forget_in(self._used)
