"""A replica's model in checkpoints: one of them writes it, and all begin with it again."""

import torch

from disttrain.checkpoint import names, stores
from disttrain.coordinator.protocol.commands import Checkpoint, Result, ShardWritten
from disttrain.coordinator.protocol.messages import Joined
from disttrain.holder import restoring, writing
from disttrain.holder.restoring import Wanted
from disttrain.holder.values import Notes, Values
from disttrain.launch.config import LaunchConfig
from disttrain.replica.model_tensors import ModelTensors
from disttrain.state.share import Share
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_CHUNK_BYTES = 2**20


class OwnModel:
    """Belongs to the compute thread."""

    def __init__(self, tensors: ModelTensors, config: LaunchConfig, joined: Joined) -> None:
        assert joined.placement is not None
        self._tensors = tensors
        self._config = config
        self._share = Share(joined.placement, 0, _CHUNK_BYTES)
        self.updates = 0
        """That are in the model."""

    def restore(self) -> None:
        """Take over what the newest checkpoint holds, if there is one."""
        config = self._config
        store = stores.open_store(config.checkpoints)
        candidates, damaged = restoring.newest(store, config.job_uid, config.resume_from)
        wanted = Wanted(
            share=self._share,
            makers={config.job.spec.strategy.rule.update_rule: lambda share, _: Values(share)},
            bring=store.bring,
        )
        restored = restoring.restore(candidates, wanted, damaged)
        if restored is not None:
            self.updates = restored.sources[0].version
            LOG.info("took over a checkpoint", number=restored.checkpoint, updates=self.updates)
            self._take(restored.values)

    def write(self, command: Checkpoint) -> Result:
        """Write the model as it is. Raises NotWritten."""
        values = Values(self._share)
        for vector in self._tensors.vectors:
            flat = torch.cat([tensor.flatten() for tensor in self._tensors.tensors(vector)])
            values.tensor(vector).copy_(flat.detach())
        made = writing.cut(command.number, values, Notes(version=self.updates))
        written = writing.write(made, stores.open_parts(self._config.checkpoints)(command.folder))
        return ShardWritten(
            file=names.part_file(self._share.holder),
            bytes=written.bytes,
            hash=written.hash,
            version=self.updates,
        )

    @torch.no_grad()
    def _take(self, values: Values) -> None:
        for vector in self._tensors.vectors:
            flat, specs = values.tensor(vector), self._tensors.specs(vector)
            for spec, tensor in zip(specs, self._tensors.tensors(vector), strict=True):
                tensor.copy_(flat[spec.first : spec.first + spec.elements].view(spec.shape))
