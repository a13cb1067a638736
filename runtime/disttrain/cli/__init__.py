"""The command line: one file per command. What it prints is decided here, what happens is not."""
