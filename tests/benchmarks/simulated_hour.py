"""An hour of a job in the simulator: CPU seconds of one core.

Three replicas push and fetch 1,000 parameters once a second, at two shards.
"""

import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders.jobs import a_job
from builders.report import Bar, print_report
from disttrain.transport.in_memory import Network
from disttrain.transport.virtual_time import VirtualTime
from simulation.chaos import CHUNK_BYTES
from simulation.sim_coordinator import SimCoordinator
from simulation.sim_replica import SimReplica
from simulation.sim_shard import SimShard
from simulation.world import World

HOUR = 3600.0
MOST_SECONDS = 20.0


def main() -> None:
    torch.set_num_threads(1)
    seconds = HOUR / 60 if "--quick" in sys.argv else HOUR
    virtual = VirtualTime()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        network = Network(virtual, chunk_bytes=16 * CHUNK_BYTES)
        world = World(
            network=network,
            folder=Path(folder),
            job=a_job(
                "spec.replicas.count=3",
                "spec.parameterServer.shards=2",
                "spec.batchSize=1",
                "spec.stop.epochs=1000",
            ),
            samples=1000,
            parameters=1000,
            step_seconds=0.8,
        )
        coordinator = SimCoordinator(world)
        network.route = lambda _, address: f"{address}-1" if address == "coordinator" else address
        began = time.process_time()
        coordinator.start()
        for index in range(2):
            SimShard(world, index)
        replicas = [SimReplica(world, index) for index in range(3)]
        virtual.wait(seconds)
        spent = time.process_time() - began
        virtual.close()
    figures = {
        "simulated_seconds": seconds,
        "pushes": len(world.pushed),
        "fetches": sum(replica.work.fetched for replica in replicas if replica.work),
    }
    bar = Bar("CPU seconds", spent, MOST_SECONDS * seconds / HOUR, at_least=False)
    print_report("simulated hour", {"job": figures}, [bar])


if __name__ == "__main__":
    main()
