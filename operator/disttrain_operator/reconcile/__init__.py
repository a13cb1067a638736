"""From what is observed of a job to what is done about it.

`plan` decides, `act` does, `queue` says when. All is pure but `act`, `events`, `relist` and
`scope`, which make requests, and `worker` and `reconciler`, which put them together and count.
"""
