"""The header: the digest that stands for a job in it."""

from disttrain.transport.header import job_digest


def test_digests_are_the_same_everywhere_and_differ_between_jobs() -> None:
    assert job_digest("job-1") == 0x2E0B2CBDF4A8B6CC
    assert job_digest("job-2") != job_digest("job-1")
    assert 0 < job_digest("") < 1 << 64
