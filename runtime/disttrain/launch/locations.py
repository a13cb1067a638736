"""Where the checkpoints of a run lie, for who comes to its folder."""

from disttrain.job import location
from disttrain.job.location import Location
from disttrain.job.spec import DistTrainJob
from disttrain.launch.run_folder import RunFolder

_VISITOR = "visitor"


def of_run(run: RunFolder, job: DistTrainJob) -> Location:
    """The location of the job's checkpoints. Raises NotARunFolder."""
    uid = ""
    if job.spec.checkpoint.is_object_store:
        # A pod's folder has no run.json; its manifest has the uid.
        uid = job.metadata.uid or run.read_record().job_uid
    return location.of(job, uid, run.path.absolute(), _VISITOR)
