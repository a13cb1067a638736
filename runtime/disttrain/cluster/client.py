"""Jobs of a cluster from a program: `disttrain.Client().submit("job.yaml").wait()`."""
