"""The coordinator's process: socket, clock and files around the machine. Decides nothing."""
