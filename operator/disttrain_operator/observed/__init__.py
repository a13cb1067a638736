"""What was seen of jobs, their children and pods: slim records, and where they are kept. Pure.

Thousands of jobs stay in memory, so a record keeps what a decision needs and not 1 KB more.
"""
