"""The only door to the API server: requests on plain objects, each with a time limit."""
