"""One rank of torch's DistributedDataParallel over gloo, or of torchft's DiLoCo, until killed.

Its one argument is a JSON object, the fields of `Settings`. The first rank prints a JSON object
with seconds, samples and `bits_per_byte` now and then; time that it took to measure is left out.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

import disttrain
from tasks.slow_language import SlowLanguage

_PORT, _STORE_PORT = 7072, 7073
_PATIENCE = timedelta(seconds=120)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """`lighthouse`: of torchft, whose DiLoCo it then is. `first`: where the first rank is."""

    rank: int
    ranks: int
    address: str
    first: str
    lighthouse: str
    task: dict[str, Any]
    batch_size: int
    rate: float
    warmup_steps: int
    steps: int
    """Between two meetings; of DiLoCo alone."""
    outer_rate: float
    measure_every: int
    """Steps."""
    seed: int


def main() -> None:
    """Train and tell."""
    settings = Settings(**json.loads(sys.argv[1]))
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    task = SlowLanguage(**settings.task)
    model = task.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.rate)
    if settings.lighthouse:
        train(settings, task, model, optimizer, diloco(settings, model, optimizer))
    else:
        distributed.init_process_group(
            "gloo",
            init_method=f"tcp://{settings.first}:{_PORT}",
            rank=settings.rank,
            world_size=settings.ranks,
            timeout=_PATIENCE,
        )
        train(settings, task, DistributedDataParallel(model), optimizer, nullcontext())


def train(
    settings: Settings,
    task: SlowLanguage,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    during: AbstractContextManager[object],
) -> None:
    """Step after step."""
    own = model.module if isinstance(model, DistributedDataParallel) else model
    measuring = 0.0
    began = time.monotonic()
    with during:
        for step, batch in enumerate(batches(settings, task), start=1):
            for group in optimizer.param_groups:
                group["lr"] = settings.rate * min(1.0, step / settings.warmup_steps)
            optimizer.zero_grad()
            task.loss(model, batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if settings.rank == 0 and step % settings.measure_every == 0:
                paused = time.monotonic()
                seconds = paused - began - measuring
                bits = task.bits_per_byte(own)
                measuring += time.monotonic() - paused
                samples = step * settings.batch_size * settings.ranks
                line = {"seconds": seconds, "samples": samples, "bits_per_byte": bits}
                sys.stdout.write(json.dumps(line) + "\n")
                sys.stdout.flush()


def batches(settings: Settings, task: SlowLanguage) -> Iterator[tuple[Tensor, Tensor]]:
    """Of this rank: all windows in an order of the seed, epoch after epoch."""
    windows = task.windows(disttrain.Split.TRAIN)
    chance = torch.Generator().manual_seed(settings.seed)
    while True:
        order = torch.randperm(len(windows), generator=chance)[settings.rank :: settings.ranks]
        for first in range(0, len(order), settings.batch_size):
            part = order[first : first + settings.batch_size]
            yield windows.given[part], windows.following[part]


@contextmanager
def diloco(
    settings: Settings, model: nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[None]:
    """As its documentation says: one fragment, and the outer optimizer of the paper."""
    from torchft import Manager, ProcessGroupGloo  # noqa: PLC0415 - Not where it is not installed.
    from torchft.local_sgd import DiLoCo  # noqa: PLC0415

    outer = torch.optim.SGD(model.parameters(), lr=settings.outer_rate, momentum=0.9, nesterov=True)
    # It serves for as long as this function has it: without it ranks meet, but never connect.
    store = distributed.TCPStore(  # type: ignore[attr-defined]
        settings.address, _STORE_PORT, is_master=True, wait_for_workers=False
    )
    manager = Manager(
        pg=ProcessGroupGloo(timeout=_PATIENCE),
        min_replica_size=settings.ranks,
        load_state_dict=lambda _: None,
        state_dict=dict,
        use_async_quorum=False,
        # All begin with the same numbers; else ranks ask for them at a name that nobody resolves.
        init_sync=False,
        timeout=_PATIENCE,
        quorum_timeout=_PATIENCE,
        rank=0,
        world_size=1,
        store_addr=settings.address,
        store_port=store.port,
        hostname=settings.address,
        lighthouse_addr=settings.lighthouse,
        replica_id=f"rank{settings.rank}",
    )
    with DiLoCo(manager, [model], optimizer, outer, sync_every=settings.steps):
        yield


if __name__ == "__main__":
    main()
