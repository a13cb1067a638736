"""The local launcher: starts, watches, restarts and stops the processes of one job on one machine.

What a process is told at its start lies in `launch`; nothing here knows how a role works.
"""
