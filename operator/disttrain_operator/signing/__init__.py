"""Signs who the processes of jobs are: the authorities, and the port at which pods ask."""
