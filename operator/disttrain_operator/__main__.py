"""`python -m disttrain_operator`: run the operator until SIGTERM."""

import asyncio
import gc
import os
import random
import signal
import sys

import uvloop

from disttrain.errors import DistTrainError
from disttrain_operator import settings
from disttrain_operator.cluster import credentials
from disttrain_operator.cluster.client import Client
from disttrain_operator.operator import Operator
from disttrain_operator.settings import Settings
from disttrain_operator.telemetry import logs

_OBJECTS_PER_COLLECTION = 50_000
"""Each event is read into hundreds of objects that go without a collection: by the default of 700
it took a tenth of the time."""


def main() -> int:
    # What is imported stays.
    gc.freeze()
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    try:
        chosen = settings.read(os.environ)
        logs.configure(chosen.log_level, chosen.log_format)
        uvloop.run(_run(chosen))
    except DistTrainError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 0
    return 0


async def _run(chosen: Settings) -> None:
    # Until kopf takes signals itself: as the first process of a container it would heed none.
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    found = credentials.find()
    async with Client(found, random.Random()) as client:
        await Operator(client, found, chosen).run()


if __name__ == "__main__":
    sys.exit(main())
