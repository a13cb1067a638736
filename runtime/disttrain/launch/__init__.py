"""Starting, supervising and stopping a job's processes on one machine; what each is told."""
