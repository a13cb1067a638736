"""From what is observed of a job to what is done about it.

`plan` decides, `act` does, `queue` says when. All is pure but `act`, `relist` and `telling`, which
make requests, `measured`, which counts, and `worker` and `reconciler`, which put them together.
"""
