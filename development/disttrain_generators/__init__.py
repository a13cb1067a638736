"""What is made from the manifest's types and committed: CRD, JSON schema, reference page.

For developers: nothing that runs in a pod or on a user's machine imports it.
"""
