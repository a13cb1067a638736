"""When the coordinator's Job is made anew, because Kubernetes would hold its next pod back.

After each pod of a Job that failed, its controller waits twice as long as before, up to ten
minutes, and forgets that only with the Job. Whoever is suspended or drained ends as a failed pod.
"""

from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import ChildRecord, JobRecord
from disttrain_operator.policies.outcome import coordinator_job, coordinators


def coordinator(job: JobRecord, observed: Observed) -> ChildRecord | None:
    """The Job that has no pod and would have to wait for one; None if there is none.

    A failed pod that is still there ended by itself: whatever ails it, waiting is right.
    """
    keeper = coordinator_job(job, observed)
    if keeper is None or keeper.deleting or keeper.ended is not None:
        return None
    waits = keeper.failed > 0 and keeper.remaining == 0
    return keeper if waits and not coordinators(job, observed) else None
