"""Layers over windows: ordinary modules of one process, and their arithmetic on a part."""
