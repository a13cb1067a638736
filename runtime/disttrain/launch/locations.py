"""Where the checkpoints of a run lie, for who comes to its folder."""

from disttrain.job import location
from disttrain.job.location import Location
from disttrain.job.spec import DistTrainJob
from disttrain.launch.run_folder import RunFolder


def of_run(run: RunFolder, job: DistTrainJob) -> Location:
    """The location of the job's checkpoints."""
    return location.of(job.spec.checkpoint.uri, run.path.absolute())
