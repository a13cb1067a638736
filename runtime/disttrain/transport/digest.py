"""The 64-bit digest that stands for a job in every header."""

import xxhash


def job_digest(job_uid: str) -> int:
    """The xxh3_64 of the uid; never 0, which no job has."""
    return xxhash.xxh3_64_intdigest(job_uid.encode()) or 1
