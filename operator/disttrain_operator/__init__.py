"""The operator: turns DistTrainJobs into Kubernetes objects and keeps them right.

What decides is pure and lies in `manifests`, `policies` and `reconcile`; `cluster` is the only door
to the API server and `handlers` the only place that knows kopf. Of the runtime nothing but
`disttrain.job` and `disttrain.errors` is imported.
"""
