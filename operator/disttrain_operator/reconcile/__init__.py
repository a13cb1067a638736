"""From what is observed of a job to what is done about it.

`records`, `parsing` and `inventory` hold what was seen, `plan` decides, `act` does, `queue` says
when. All but `act`, `worker` and `reconciler` is pure.
"""
