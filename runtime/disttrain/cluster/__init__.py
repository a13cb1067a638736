"""The jobs of a cluster, as a person with a kubeconfig meets them: submit, look, follow, change.

What is asked, shown and packed is decided here by pure modules; `kubernetes_api` alone knows the
Kubernetes library, which is an extra (`cluster`) and slow to import. What runs in the cluster is
not here: that is the operator, and the processes of the jobs themselves.
"""
