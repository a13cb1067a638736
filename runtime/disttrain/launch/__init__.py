"""What a process is told at its start and what it leaves behind: config, run folder, exit codes.

Whoever starts processes uses it, on one machine or in a cluster. No process is started here.
"""
