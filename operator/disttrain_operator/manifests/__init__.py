"""From a job and the operator's settings to the objects that it has on the cluster. Pure.

`children` puts them together. No I/O and no randomness: what is random is handed in.
"""
