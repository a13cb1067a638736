"""The command line: what it prints is decided here, what happens is not."""
