"""What a member that leaves writes down while no coordinator hears it, and who looks for it.

The next incarnation of the coordinator takes it as if it had been said: the rest of a replica's
work goes to others at once, and nothing that it did is done again. It lies where all processes of
the job reach: in the run's folder, or in the job's object store, whose pods share no folder. A
run's owner, whom no coordinator hears, removes a joiner in the same way.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path

from disttrain.checkpoint import names
from disttrain.checkpoint.blobs import Blobs, FolderBlobs
from disttrain.checkpoint.errors import CheckpointError, Corrupt, StoreDenied
from disttrain.checkpoint.objects import Objects, open_objects
from disttrain.coordinator.errors import MessageRefused
from disttrain.coordinator.protocol import payloads
from disttrain.coordinator.protocol.notices import Notice, Remove
from disttrain.launch.background import Background
from disttrain.launch.config import LaunchConfig
from disttrain.telemetry import logs

LOG = logs.get(__name__)


class LeaveNotices:
    """The leave notices of one job. No method raises; each may take as long as the blobs do."""

    def __init__(self, open_blobs: Callable[[], Blobs], pause_seconds: float) -> None:
        self._open_blobs = open_blobs
        self.pause_seconds = pause_seconds
        """Between two looks at what is there."""

    @cached_property
    def _blobs(self) -> Blobs:
        # Slow to open in an object store, and few members ever leave so.
        return self._open_blobs()

    def write(self, notice: Notice) -> None:
        """Leave it for a coordinator. If that is impossible, it is a death without one."""
        try:
            self._blobs.write(_name(notice), payloads.encode_notice(notice))
        except CheckpointError as error:
            LOG.warning("left without a word", reason=error)

    def read(self) -> dict[str, Notice]:
        """The notices by name. A blob that is none is logged and deleted.

        `forget` each once it is journaled.
        """
        try:
            there = self._blobs.sizes(names.FAREWELLS)
            sizes = {name: size for name, size in there.items() if size <= payloads.LIMIT_BYTES}
            contents = self._contents(sizes)
        except CheckpointError as error:
            LOG.warning("leave notices cannot be read", reason=error)
            return {}
        for name in there.keys() - sizes.keys():
            LOG.warning("a leave notice is too long", name=name, bytes=there[name])
            self.forget(name)
        found: dict[str, Notice] = {}
        for name in sorted(contents):
            try:
                found[name] = payloads.parse_notice(contents[name])
            except MessageRefused as error:
                LOG.warning("a leave notice cannot be read", name=name, reason=error)
                self.forget(name)
        return found

    def _contents(self, sizes: Mapping[str, int]) -> Mapping[str, bytes]:
        with suppress(Corrupt, StoreDenied):
            return self._blobs.read_all(sizes)
        # One that cannot be read hides no other.
        found: dict[str, bytes] = {}
        for name, size in sizes.items():
            try:
                found[name] = self._blobs.read(name, size)
            except (Corrupt, StoreDenied) as error:
                LOG.warning("a leave notice cannot be read", name=name, reason=error)
        return found

    def forget(self, name: str) -> None:
        """Delete it. One that stays is heard again, which changes nothing."""
        self._blobs.delete([name])


def open_notices(config: LaunchConfig) -> LeaveNotices:
    """Where all processes of this job look for them; nothing is asked of an object store yet."""
    if uri := config.checkpoints.uri:
        return LeaveNotices(partial(open_objects, uri), Objects.poll_seconds)
    return in_folder(config.run_folder)


def in_folder(run: Path) -> LeaveNotices:
    return LeaveNotices(partial(FolderBlobs, run), FolderBlobs.poll_seconds)


def _name(notice: Notice) -> str:
    if isinstance(notice, Remove):
        return f"{names.FAREWELLS}/{notice.place}.removed.json"
    member = notice.member
    return f"{names.FAREWELLS}/{member.name}.i{member.incarnation}.json"


_LAST_SECONDS = 1.0
"""For what is to be forgotten at the end; one that stays is heard again, which changes nothing."""


class LeaveNoticeWatch:
    """Belongs to the coordinator's thread; the store is asked in another one.

    A store that is away takes tens of seconds to say so, and heartbeats must be heard meanwhile.
    """

    def __init__(self, notices: LeaveNotices) -> None:
        self._notices = notices
        self._background = Background("leave-notices")
        self._look: Future[dict[str, Notice]] | None = None
        self._forgetting: set[Future[None]] = set()
        self._next_look = 0.0

    def found(self, now: float) -> Mapping[str, Notice]:
        """Those of the last look, by name, once; `forget` each when it is journaled."""
        if self._look is not None and self._look.done():
            found, self._look = self._look.result(), None
            self._next_look = now + self._notices.pause_seconds
            return found
        if self._look is None and now >= self._next_look:
            self._look = self._background.submit(self._notices.read)
        return {}

    def forget(self, name: str) -> None:
        """Have it deleted before the next look."""
        future = self._background.submit(partial(self._notices.forget, name))
        self._forgetting.add(future)
        future.add_done_callback(self._forgetting.discard)

    def finish(self) -> None:
        wait(list(self._forgetting), _LAST_SECONDS)
