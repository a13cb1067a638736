"""Starting, supervising and stopping the processes of a job on one machine, and what a process is told at its start."""
