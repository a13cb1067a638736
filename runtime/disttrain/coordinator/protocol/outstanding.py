"""Which requests still wait for their answer, and when they are sent again. Pure."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Outstanding:
    """Requests without an answer yet. Sending one again is harmless: see `messages`."""

    retry_seconds: float = 1.0
    """Silence after which a request is sent again: a restarting coordinator takes about this long.
    """
    _next: int = 1
    _waiting: dict[int, tuple[float, bytes]] = field(default_factory=dict)

    def add(self, payload: bytes, now: float) -> int:
        """Remembers a request that is being sent now; gives its number."""
        number = self._next
        self._next += 1
        self._waiting[number] = (now, payload)
        return number

    def waits(self, number: int) -> bool:
        """Whether this request has no answer yet; false for one that was never made."""
        return number in self._waiting

    def answered(self, number: int) -> None:
        """The request, which waits, needs to be sent no more."""
        del self._waiting[number]

    def due(self, now: float) -> list[tuple[int, bytes]]:
        """The requests to be sent again now."""
        late = [
            (number, payload)
            for number, (sent, payload) in self._waiting.items()
            if now - sent >= self.retry_seconds
        ]
        for number, payload in late:
            self._waiting[number] = (now, payload)
        return late

    def __len__(self) -> int:
        return len(self._waiting)
