"""The rows of the dashboard of one job, a subject each."""
