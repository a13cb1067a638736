"""A job on the test cluster whose processes only pretend: it starts in seconds."""

import re
from typing import Any

from builders import cluster_jobs
from builders.job_view import JobView

_LONGEST = 40
"""Characters of a job's name."""


def named_after(test: str) -> str:
    """A job's name that tells which test made it."""
    words = re.sub(r"[^a-z0-9]+", "-", test.lower().removeprefix("test_"))
    return words[:_LONGEST].strip("-")


class PretendedTraining(JobView):
    @property
    def children(self) -> list[str]:
        """What is made for the job and goes with it; of its Secret nobody knows the name."""
        return [
            f"statefulset/{self.name}-shard",
            f"replicaset/{self.name}-replica",
            f"job.batch/{self.name}-coordinator",
            f"service/{self.name}",
            f"poddisruptionbudget/{self.name}-shard",
        ]

    def apply(self, **spec: Any) -> None:
        """Apply the job; `spec` replaces fields of its spec."""
        self.kubectl.apply(cluster_jobs.pretending(self.name, **spec))

    def start(self, **spec: Any) -> None:
        """Apply the job and return when it runs."""
        self.apply(**spec)
        self.wait_for_phase("Running")

    def finish(self, phase: str = "Complete", reason: str = "Epochs", message: str = "") -> None:
        """Have the coordinator end with these words."""
        # Neither the phase nor a condition waits for it.
        self.wait_until(lambda: len(self.pods("coordinator")) == 1, "the coordinator's pod is made")
        (pod,) = self.pods("coordinator")
        name = pod["metadata"]["name"]
        self.kubectl.wait_until("Ready", f"pod/{name}")
        words = cluster_jobs.outcome(phase, reason, message)
        script = f"echo '{words}' > {cluster_jobs.FINISH}"
        self.kubectl.run("exec", name, "--", "sh", "-c", script)
