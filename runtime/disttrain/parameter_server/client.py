"""What a replica asks of the parameter server; pushes and fetches from one thread each."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from disttrain.parameter_server.conversation import ClientConfig, Conversation, Directory
from disttrain.parameter_server.fetching import FetchTask
from disttrain.parameter_server.messages import Identity, Side, Version
from disttrain.parameter_server.pushing import Push, PushResult, PushTask
from disttrain.parameter_server.staging import Stage, StageTask
from disttrain.parameter_server.uploading import UploadTask
from disttrain.state.vector import BUFFERS, Vector
from disttrain.transport.interface import Buffer

__all__ = [
    "ClientConfig",
    "Directory",
    "FetchClient",
    "FetchResult",
    "Identity",
    "Push",
    "PushClient",
    "PushResult",
    "Stage",
    "Version",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchResult:
    """What the values are of."""

    versions: tuple[Version, ...]
    """Of every shard: the version of its first chunk; the others are of this one or a later one."""
    samples: int
    """Training samples in the values, of the shard that has applied the fewest."""
    buffers_changed: bool
    """Whether buffers were fetched that may differ from those of the last fetch."""


class PushClient:
    """Used by one thread, except `stop`."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._shards = len(config.placement.holders)
        self._conversation = Conversation(config, Side.PUSH)
        self._uploads = 0

    def push(self, push: Push) -> list[PushResult]:
        """Blocks until every shard has answered, restarts of shards included.

        Raises Fenced (end the process), PushRefused (all shards have answered; the next push may be
        fine), RequestRefused and ShardsAway.
        """
        self._conversation.wait_for_shards(self._shards)
        links = self._conversation.links
        tasks = {
            shard: PushTask(links[shard], self._config.identity, push)
            for shard in range(self._shards)
        }
        self._conversation.run(tasks)
        for task in tasks.values():
            if task.refused is not None:
                raise task.refused
        return [tasks[shard].result for shard in range(self._shards)]

    def stage(self, stage: Stage) -> tuple[int, ...]:
        """Send a group's gradient; the shards' incarnations, when every shard has all of it.

        Blocks until then, restarts of shards included. Raises EvaluationOver (drop the attempt),
        Fenced, RequestRefused and ShardsAway.
        """
        self._conversation.wait_for_shards(self._shards)
        links = self._conversation.links
        tasks = {
            shard: StageTask(links[shard], self._config.identity, stage)
            for shard in range(self._shards)
        }
        self._conversation.run(tasks)
        return tuple(tasks[shard].incarnation for shard in range(self._shards))

    def upload(self, values: Mapping[Vector, Buffer], shards: Collection[int]) -> None:
        """Send the initial values to these shards; blocks until they have all of them."""
        self._uploads += 1
        self._conversation.wait_for_shards(self._shards)
        links = self._conversation.links
        self._conversation.run(
            {
                shard: UploadTask(links[shard], self._config.identity, self._uploads, values)
                for shard in shards
            }
        )

    def stop(self) -> None:
        """Whatever is under way raises ShardsAway soon; any thread."""
        self._conversation.stop()

    def close(self) -> None:
        """Drops what was not sent."""
        self._conversation.close()


class FetchClient:
    """Used by one thread, except `stop`."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._shards = len(config.placement.holders)
        self._conversation = Conversation(config, Side.FETCH)
        self._number = 0
        self._versions: tuple[Version, ...] = ()

    def fetch(self, into: Mapping[Vector, Buffer]) -> FetchResult:
        """Fill the buffers (whole vectors); blocks until every shard has answered.

        No chunk is torn. Raises Fenced, RequestRefused and ShardsAway; then what lies in the
        buffers is of no use.
        """
        self._number += 1
        tasks = self._fetch(self._number, into)
        versions = tuple(tasks[shard].version for shard in range(self._shards))
        has_buffers = any(vector.name == BUFFERS for vector in into)
        changed = has_buffers and versions != self._versions
        self._versions = versions
        samples = min(task.samples for task in tasks.values())
        return FetchResult(versions=versions, samples=samples, buffers_changed=changed)

    def fetch_trial(self, evaluation: int, trial: Vector, into: Buffer) -> None:
        """Fill the buffer with the point of an evaluation that is under way. As `fetch`.

        Raises EvaluationOver, too.
        """
        self._fetch(evaluation, {trial: into})

    def stop(self) -> None:
        """Whatever is under way raises ShardsAway soon; any thread."""
        self._conversation.stop()

    def close(self) -> None:
        """Drops what was not sent."""
        self._conversation.close()

    def _fetch(self, number: int, into: Mapping[Vector, Buffer]) -> dict[int, FetchTask]:
        self._conversation.wait_for_shards(self._shards)
        links = self._conversation.links
        tasks = {
            shard: FetchTask(links[shard], self._config.identity, number, into)
            for shard in range(self._shards)
        }
        self._conversation.run(tasks)
        return tasks
