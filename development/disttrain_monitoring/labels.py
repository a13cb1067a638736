"""Labels that scraping gives to every series: the chart's monitors and the docs set just these."""

from typing import Final

NAMESPACE: Final = "namespace"
JOB: Final = "disttrain_job"
"""The job's name; only on series of a job's own pods."""
COMPONENT: Final = "component"
"""coordinator, shard, replica or operator."""
POD: Final = "pod"

ALL: Final = (NAMESPACE, JOB, COMPONENT, POD)
EACH_JOB: Final = f"{NAMESPACE}, {JOB}"
"""What tells jobs apart."""
